//! Staging: a profile is built under a name that Hermes does not scan, then renamed into place complete.
//!
//! A running gateway sees either nothing or the whole profile with its own key and token. What a crash left behind is
//! recognised by its name and by holding nothing but the three files; anything else is left alone and named.

use std::fmt;
use std::io;
use std::path::Path;

use zeroize::Zeroizing;

use super::files::Directory;
use crate::names::ProfileName;
use crate::secret::{ApiServerKey, SecretText};

/// The variable in a profile's `.env` that its `mcp_servers` entry names.
pub const MCP_TOKEN_VARIABLE: &str = "BOTGATE_MCP_TOKEN";

const PROFILES: &str = "profiles";
const CONFIG: &str = "config.yaml";
const ENV: &str = ".env";
const SOUL: &str = "SOUL.md";

/// What a new profile consists of.
#[derive(Debug)]
pub struct ProfileFiles {
    /// Text of `config.yaml`. It must not have a `gateway` block: one listener serves all profiles.
    pub config_yaml: String,
    /// The key that opens the profile's path.
    pub api_server_key: ApiServerKey,
    /// The bot's MCP credential, for [`MCP_TOKEN_VARIABLE`].
    pub mcp_token: Option<SecretText>,
    /// Text of `SOUL.md`: who the bot is.
    pub soul: String,
}

/// Why a profile was not made. No half of one is ever in its place.
#[derive(Debug)]
pub enum StageError {
    /// Something has the profile's name already.
    Exists(ProfileName),
    /// The staging name holds what botgate did not put there; it is left alone.
    Leftover(ProfileName, io::Error),
    /// What was renamed is not what was built: somebody else works in this directory.
    Swapped(ProfileName),
    /// A secret holds a character that an `.env` file would not give back unchanged.
    Secret(&'static str),
    /// `config.yaml` has a `gateway` block.
    GatewayBlock,
    /// A step failed.
    Io(&'static str, io::Error),
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StageError::Exists(name) => write!(f, "profile {name} exists already"),
            StageError::Leftover(name, error) => write!(f, "profiles/{} is in the way: {error}", staging(name)),
            StageError::Swapped(name) => write!(f, "profile {name} was exchanged while it was made"),
            StageError::Secret(which) => write!(f, "the {which} holds a quote, backslash, space or control character"),
            StageError::GatewayBlock => f.write_str("a profile's config.yaml may not have a gateway block"),
            StageError::Io(step, error) => write!(f, "{step}: {error}"),
        }
    }
}

impl std::error::Error for StageError {}

/// The `profiles` directory of a Hermes home.
#[derive(Debug)]
pub struct Profiles(Directory);

impl Profiles {
    /// Opens it, and makes it when the home has none.
    ///
    /// # Errors
    /// The home or its `profiles` is not a directory that can be opened, a link among them.
    pub fn open(home: &Path) -> Result<Self, StageError> {
        let home = Directory::open(home).map_err(|error| StageError::Io("opening the Hermes home", error))?;
        let profiles = match home.make_child(PROFILES) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => home.child(PROFILES),
            made => made,
        };
        profiles.map(Profiles).map_err(|error| StageError::Io("opening profiles", error))
    }

    /// Makes a profile: complete and at once, or not at all.
    ///
    /// # Errors
    /// [`StageError`]; what was there before is still there, unchanged.
    pub fn create(&self, name: &ProfileName, files: &ProfileFiles) -> Result<(), StageError> {
        let env = files.env()?;
        if files.config_yaml.lines().any(|line| line.starts_with("gateway:")) {
            return Err(StageError::GatewayBlock);
        }
        if self.0.has(name.as_str()).map_err(|error| StageError::Io("looking for the profile", error))? {
            return Err(StageError::Exists(name.clone()));
        }
        let staging = staging(name);
        self.clear(&staging).map_err(|error| StageError::Leftover(name.clone(), error))?;
        let placed = self.build(&staging, files, &env).and_then(|built| self.place(&staging, name, &built));
        if placed.is_err() {
            // The first error counts; what cannot be cleared now is cleared by the next attempt.
            let _ = self.clear(&staging);
        }
        placed
    }

    fn build(&self, staging: &str, files: &ProfileFiles, env: &str) -> Result<Directory, StageError> {
        let built =
            self.0.make_child(staging).map_err(|error| StageError::Io("making the staging directory", error))?;
        for (name, content) in [(CONFIG, files.config_yaml.as_str()), (ENV, env), (SOUL, files.soul.as_str())] {
            built.make_file(name, content.as_bytes()).map_err(|error| StageError::Io(name, error))?;
        }
        built.sync().map_err(|error| StageError::Io("syncing the staging directory", error))?;
        Ok(built)
    }

    fn place(&self, staging: &str, name: &ProfileName, built: &Directory) -> Result<(), StageError> {
        let failed = |error| StageError::Io("renaming into place", error);
        if !self.0.holds(staging, built).map_err(failed)? {
            return Err(StageError::Swapped(name.clone()));
        }
        match self.0.rename_new(staging, name.as_str()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(StageError::Exists(name.clone())),
            renamed => renamed.map_err(failed)?,
        }
        self.0.sync().map_err(failed)?;
        match self.0.holds(name.as_str(), built).map_err(failed)? {
            true => Ok(()),
            false => Err(StageError::Swapped(name.clone())),
        }
    }

    /// Takes a staging name away: a link or file itself, a directory if it holds nothing but the three files.
    fn clear(&self, staging: &str) -> io::Result<()> {
        match self.0.child(staging) {
            Ok(left) => {
                for name in [CONFIG, ENV, SOUL] {
                    left.remove_file(name)?;
                }
                self.0.remove_child(staging)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(_) => self.0.remove_file(staging),
        }
    }
}

impl ProfileFiles {
    /// Text of the `.env` file.
    fn env(&self) -> Result<Zeroizing<String>, StageError> {
        let mut text = Zeroizing::new(String::with_capacity(512));
        let key = self.api_server_key.expose();
        let token = self.mcp_token.as_ref().map(SecretText::expose);
        let lines = [("API_SERVER_KEY", Some(key)), (MCP_TOKEN_VARIABLE, token)];
        for (variable, value) in lines.into_iter().filter_map(|(variable, value)| Some((variable, value?))) {
            if value.is_empty()
                || !value.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'`' | b'\\'))
            {
                return Err(StageError::Secret(variable));
            }
            for piece in [variable, "=", value, "\n"] {
                text.push_str(piece);
            }
        }
        Ok(text)
    }
}

/// The name under which a profile is built: with a dot, so that a gateway does not scan it.
fn staging(name: &ProfileName) -> String {
    format!(".{name}.staging")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn files() -> ProfileFiles {
        ProfileFiles {
            config_yaml: "model:\n  default: m\n".to_owned(),
            api_server_key: ApiServerKey::parse("fixture-key-0123456789#x").unwrap(),
            mcp_token: Some(SecretText::new("fixture-token".to_owned())),
            soul: "You are bot-alice.\n".to_owned(),
        }
    }

    fn alice() -> ProfileName {
        ProfileName::parse("bot-alice").unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_profile_appears_complete_and_owner_only() {
        let home = tempfile::tempdir().unwrap();
        Profiles::open(home.path()).unwrap().create(&alice(), &files()).unwrap();
        let profiles = home.path().join("profiles");
        let made = profiles.join("bot-alice");
        assert_eq!(names(&profiles), ["bot-alice"]);
        assert_eq!(names(&made), [".env", "SOUL.md", "config.yaml"]);
        assert_eq!((mode(&profiles), mode(&made)), (0o700, 0o700));
        assert_eq!(mode(&made.join(".env")), 0o600);
        assert_eq!(
            fs::read_to_string(made.join(".env")).unwrap(),
            "API_SERVER_KEY=fixture-key-0123456789#x\nBOTGATE_MCP_TOKEN=fixture-token\n"
        );
    }

    #[test]
    fn what_exists_is_never_replaced() {
        let home = tempfile::tempdir().unwrap();
        let profiles = Profiles::open(home.path()).unwrap();
        let target = home.path().join("profiles/bot-alice");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("theirs"), "x").unwrap();
        assert!(matches!(profiles.create(&alice(), &files()), Err(StageError::Exists(_))));
        assert_eq!(names(&target), ["theirs"]);
        fs::remove_dir_all(&target).unwrap();
        symlink("/nonexistent", &target).unwrap();
        assert!(matches!(profiles.create(&alice(), &files()), Err(StageError::Exists(_))));
        assert_eq!(names(&home.path().join("profiles")), ["bot-alice"]);
    }

    #[test]
    fn the_rename_itself_refuses_what_appeared_meanwhile() {
        let home = tempfile::tempdir().unwrap();
        let profiles = Profiles::open(home.path()).unwrap();
        let files = files();
        let built = profiles.build(".bot-alice.staging", &files, &files.env().unwrap()).unwrap();
        // An empty directory is what a plain rename would replace without a word.
        fs::create_dir(home.path().join("profiles/bot-alice")).unwrap();
        let placed = profiles.place(".bot-alice.staging", &alice(), &built);
        assert!(matches!(placed, Err(StageError::Exists(_))));
        assert!(names(&home.path().join("profiles/bot-alice")).is_empty());
    }

    #[test]
    fn what_a_crash_left_is_cleared() {
        let home = tempfile::tempdir().unwrap();
        let profiles = Profiles::open(home.path()).unwrap();
        let left = home.path().join("profiles/.bot-alice.staging");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(".env"), "API_SERVER_KEY=an-older-fixture-key\n").unwrap();
        profiles.create(&alice(), &files()).unwrap();
        let env = fs::read_to_string(home.path().join("profiles/bot-alice/.env")).unwrap();
        assert!(!env.contains("older") && !left.exists());
    }

    #[test]
    fn what_botgate_did_not_put_there_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let profiles = Profiles::open(home.path()).unwrap();
        let left = home.path().join("profiles/.bot-alice.staging");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("notes"), "x").unwrap();
        assert!(matches!(profiles.create(&alice(), &files()), Err(StageError::Leftover(..))));
        assert!(left.join("notes").exists() && !home.path().join("profiles/bot-alice").exists());
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let profiles = Profiles::open(home.path()).unwrap();
        fs::write(elsewhere.path().join(".env"), "theirs").unwrap();
        let link = home.path().join("profiles/.bot-alice.staging");
        symlink(elsewhere.path(), &link).unwrap();
        profiles.create(&alice(), &files()).unwrap();
        assert_eq!(fs::read_to_string(elsewhere.path().join(".env")).unwrap(), "theirs");
        assert!(home.path().join("profiles/bot-alice").symlink_metadata().unwrap().is_dir());
        assert!(link.symlink_metadata().is_err());

        let other = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), other.path().join("profiles")).unwrap();
        assert!(Profiles::open(other.path()).is_err());
    }

    #[test]
    fn a_directory_that_was_exchanged_is_not_published() {
        let home = tempfile::tempdir().unwrap();
        let profiles = Profiles::open(home.path()).unwrap();
        let files = files();
        let built = profiles.build(".bot-alice.staging", &files, &files.env().unwrap()).unwrap();
        let path = home.path().join("profiles");
        fs::rename(path.join(".bot-alice.staging"), path.join("moved")).unwrap();
        symlink("/nonexistent", path.join(".bot-alice.staging")).unwrap();
        assert!(matches!(profiles.place(".bot-alice.staging", &alice(), &built), Err(StageError::Swapped(_))));
        assert!(path.join("bot-alice").symlink_metadata().is_err());
    }

    #[test]
    fn what_env_would_not_give_back_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let profiles = Profiles::open(home.path()).unwrap();
        for token in ["", "a b", "a\nAPI_SERVER_KEY=x", "a\"b", "a'b", "a\\b"] {
            let files = ProfileFiles { mcp_token: Some(SecretText::new(token.to_owned())), ..files() };
            assert!(matches!(profiles.create(&alice(), &files), Err(StageError::Secret(_))), "{token:?}");
        }
        let files = ProfileFiles { config_yaml: "a: 1\ngateway:\n  port: 1\n".to_owned(), ..files() };
        assert!(matches!(profiles.create(&alice(), &files), Err(StageError::GatewayBlock)));
        assert!(names(&home.path().join("profiles")).is_empty());
    }
}
