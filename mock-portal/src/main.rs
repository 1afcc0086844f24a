//! The program `mock-portal`: arguments, wiring, exit codes. What it does stands in the library beside it.

mod program;

fn main() -> std::process::ExitCode {
    program::main()
}
