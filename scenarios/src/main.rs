//! The `softroce` program.

fn main() -> std::process::ExitCode {
    softroce::cli::main(std::env::args_os())
}
