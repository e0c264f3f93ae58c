//! Model: the store's rows as the rooms above see them. Timestamps are UTC milliseconds.
//!
//! Plain data without rules of its own; parsing and constraints stand where the rows are read and written.

mod loaded;
mod people;
mod tokens;

pub use loaded::{Loaded, RowFault, RowProblem, RunRow};
pub use people::{BotKey, Deleting, ImportLine, ImportOutcome, LockedDown, NewPerson, PersonRow, PersonState};
pub use tokens::{BotTokenRow, IdleFlush, NewSession, SessionFilter, SessionRefused, SessionRow};
