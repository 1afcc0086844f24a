//! The program `mock-portal`: arguments, wiring, exit codes. What it does stands in the library beside it.

mod program;

/// As in `loadgen`: thousands of connections make and free buffers of all sizes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    program::main()
}
