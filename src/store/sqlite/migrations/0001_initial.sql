-- Timestamps are UTC milliseconds. Names are checked again when they are read; the checks here keep a row from
-- saying what no row may say, whoever writes it.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE users (
    uid          TEXT PRIMARY KEY CHECK (length(uid) BETWEEN 1 AND 32),
    login        TEXT NOT NULL UNIQUE CHECK (octet_length(login) BETWEEN 1 AND 128),
    role         TEXT NOT NULL CHECK (length(role) BETWEEN 1 AND 64),
    state        TEXT NOT NULL CHECK (state IN ('active', 'disabled', 'deleting')),
    gateway      TEXT CHECK (length(gateway) BETWEEN 1 AND 64),
    bot_profile  TEXT UNIQUE CHECK (bot_profile GLOB 'bot-?*' AND length(bot_profile) <= 64),
    adopted      INTEGER NOT NULL DEFAULT 0 CHECK (adopted IN (0, 1)),
    bot_token_id TEXT,
    created_at   INTEGER NOT NULL CHECK (created_at >= 0),
    UNIQUE (bot_profile, gateway),
    CHECK (bot_profile IS NULL OR gateway IS NOT NULL),
    CHECK (bot_token_id IS NULL OR (bot_profile IS NOT NULL AND state <> 'deleting')),
    -- The pair, so that a token of another person can never be one's own.
    FOREIGN KEY (bot_token_id, uid) REFERENCES bot_tokens (id, uid) DEFERRABLE INITIALLY DEFERRED
) STRICT, WITHOUT ROWID;

CREATE INDEX users_by_bot_token ON users (bot_token_id, uid) WHERE bot_token_id IS NOT NULL;

CREATE TABLE bot_keys (
    profile    TEXT PRIMARY KEY,
    gateway    TEXT NOT NULL,
    sealed     BLOB NOT NULL CHECK (length(sealed) BETWEEN 41 AND 8192),
    generation INTEGER NOT NULL CHECK (generation >= 1),
    FOREIGN KEY (profile, gateway) REFERENCES users (bot_profile, gateway) DEFERRABLE INITIALLY DEFERRED
) STRICT, WITHOUT ROWID;

CREATE TABLE bot_tokens (
    id           TEXT PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 32),
    uid          TEXT NOT NULL REFERENCES users (uid) DEFERRABLE INITIALLY DEFERRED,
    digest       BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    created_at   INTEGER NOT NULL CHECK (created_at >= 0),
    last_used_at INTEGER,
    revoked_at   INTEGER,
    UNIQUE (id, uid)
) STRICT, WITHOUT ROWID;

CREATE INDEX bot_tokens_by_uid ON bot_tokens (uid, revoked_at);

CREATE TABLE sessions (
    id              TEXT PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 32),
    digest          BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    uid             TEXT NOT NULL REFERENCES users (uid) DEFERRABLE INITIALLY DEFERRED,
    kind            TEXT NOT NULL CHECK (kind IN ('session', 'personal')),
    label           TEXT CHECK (octet_length(label) <= 200),
    created_at      INTEGER NOT NULL CHECK (created_at >= 0),
    expires_at      INTEGER NOT NULL CHECK (expires_at > created_at),
    idle_expires_at INTEGER,
    last_used_at    INTEGER,
    revoked_at      INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_uid ON sessions (uid, id);
CREATE INDEX sessions_by_end ON sessions (expires_at);

CREATE TABLE open_runs (
    run_id     TEXT PRIMARY KEY CHECK (length(run_id) BETWEEN 1 AND 256),
    uid        TEXT NOT NULL REFERENCES users (uid) DEFERRABLE INITIALLY DEFERRED,
    session_id TEXT NOT NULL,
    profile    TEXT NOT NULL,
    gateway    TEXT NOT NULL,
    started_at INTEGER NOT NULL CHECK (started_at >= 0)
) STRICT, WITHOUT ROWID;

CREATE INDEX open_runs_by_uid ON open_runs (uid);

-- What is revoked stays revoked, and what is being deleted goes on to its end.

CREATE TRIGGER sessions_stay_revoked BEFORE UPDATE ON sessions
WHEN OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS NOT OLD.revoked_at
BEGIN SELECT RAISE(ABORT, 'a revoked session stays revoked'); END;

CREATE TRIGGER bot_tokens_stay_revoked BEFORE UPDATE ON bot_tokens
WHEN OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS NOT OLD.revoked_at
BEGIN SELECT RAISE(ABORT, 'a revoked bot token stays revoked'); END;

CREATE TRIGGER users_stay_deleting BEFORE UPDATE ON users
WHEN OLD.state = 'deleting' AND NEW.state <> 'deleting'
BEGIN SELECT RAISE(ABORT, 'a person who is being deleted does not come back'); END;

CREATE TRIGGER users_keep_their_name BEFORE UPDATE ON users
WHEN NEW.uid <> OLD.uid OR NEW.login <> OLD.login
BEGIN SELECT RAISE(ABORT, 'a person keeps uid and login'); END;

CREATE TRIGGER sessions_keep_their_owner BEFORE UPDATE ON sessions
WHEN NEW.uid <> OLD.uid OR NEW.digest <> OLD.digest
BEGIN SELECT RAISE(ABORT, 'a session keeps owner and digest'); END;

CREATE TRIGGER sessions_only_of_active BEFORE INSERT ON sessions
WHEN (SELECT state FROM users WHERE uid = NEW.uid) IS NOT 'active'
BEGIN SELECT RAISE(ABORT, 'only an active person gets a session'); END;
