//! `loadgen worker`: this program as a part of a run that is split into processes.

use std::path::PathBuf;

use clap::ValueEnum as _;
use fleet::embedded::Embedded;
use fleet::shard::Shard;
use fleet::worker::{Program, serve};
use record::Exit;

use crate::Usage;
use crate::cli::{LogFormat, WorkerOptions, WorkerPart};
use crate::told::tell;

/// How a run starts this program as a part of itself: it logs as the run does.
pub(crate) fn program(log: &str, format: LogFormat) -> Program {
    let format = format.to_possible_value();
    let format = format.map(|value| value.get_name().to_owned());
    Program {
        // The program that runs, whatever has been put in its place meanwhile.
        path: PathBuf::from("/proc/self/exe"),
        name: env!("CARGO_PKG_NAME").to_owned(),
        arguments: vec![
            "--log".to_owned(),
            log.to_owned(),
            "--log-format".to_owned(),
            format.unwrap_or_default(),
            "worker".to_owned(),
        ],
        tell,
    }
}

/// Works until there is nothing more to do.
pub(crate) fn work(options: WorkerOptions) -> Result<Exit, Usage> {
    let worked = match options.part {
        WorkerPart::Agents => serve::<Shard>(),
        WorkerPart::Portal => serve::<Embedded>(),
    };
    worked.map(|()| Exit::Held).map_err(|error| {
        Usage(format!(
            "{error}; a worker is started by `loadgen run --shards`, and speaks with it alone"
        ))
    })
}
