//! The program: parses the arguments, runs the command, maps its end to an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    botgate::cli::main()
}
