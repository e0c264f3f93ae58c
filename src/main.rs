//! The program: parses the arguments, runs the command, maps its end to an exit code.

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    botgate::cli::main()
}
