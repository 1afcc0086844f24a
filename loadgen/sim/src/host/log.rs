//! The logs of operations: bounded each and together, the last lines kept (FILE-8, R9).

use std::collections::VecDeque;

use agent_core::limits::{OPERATION_LOG_BYTES_MAX, OPERATION_LOGS_BYTES_MAX};
use agent_core::machine::LogLine;
use protocol::id::OperationId;
use protocol::limits::LOG_TAIL_LINES_MAX;

/// The logs of a node's operations, oldest first.
#[derive(Debug, Default)]
pub(super) struct Logs(VecDeque<Log>);

#[derive(Debug)]
struct Log {
    operation: OperationId,
    lines: VecDeque<LogLine>,
    bytes: usize,
}

impl Logs {
    /// One more line of an operation.
    pub(super) fn write(&mut self, operation: &OperationId, line: LogLine) {
        let at = match self.0.iter().position(|log| log.operation == *operation) {
            Some(at) => at,
            None => {
                self.0.push_back(Log {
                    operation: operation.clone(),
                    lines: VecDeque::new(),
                    bytes: 0,
                });
                self.0.len() - 1
            }
        };
        let log = &mut self.0[at];
        log.bytes += line.as_str().len();
        log.lines.push_back(line);
        while log.bytes > OPERATION_LOG_BYTES_MAX
            && let Some(oldest) = log.lines.pop_front()
        {
            log.bytes -= oldest.as_str().len();
        }
        let mut bytes: usize = self.0.iter().map(|log| log.bytes).sum();
        while bytes > OPERATION_LOGS_BYTES_MAX
            && let Some(oldest) = self.0.pop_front()
        {
            bytes -= oldest.bytes;
        }
    }

    /// The last lines of an operation's log, as many as a report takes (OPS-3).
    pub(super) fn tail(&self, operation: &OperationId) -> Vec<LogLine> {
        let Some(log) = self.0.iter().find(|log| log.operation == *operation) else {
            return Vec::new();
        };
        let surplus = log.lines.len().saturating_sub(LOG_TAIL_LINES_MAX);
        log.lines.iter().skip(surplus).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_bounded_each_and_together_and_the_last_lines_are_kept() {
        let name = |number: usize| -> OperationId { format!("op_{number}").parse().unwrap() };
        let mut logs = Logs::default();
        let long = "x".repeat(1_000);
        for number in 0..70 {
            for line in 0..1_100 {
                logs.write(&name(number), LogLine::new(format!("{line} {long}")));
            }
        }
        let bytes: usize = logs.0.iter().map(|log| log.bytes).sum();
        assert!(bytes <= OPERATION_LOGS_BYTES_MAX);
        assert!(
            logs.0
                .iter()
                .all(|log| log.bytes <= OPERATION_LOG_BYTES_MAX)
        );
        assert!(logs.0.len() >= 60, "{}", logs.0.len());
        assert_eq!(logs.tail(&name(0)), [], "the oldest went");
        let tail = logs.tail(&name(69));
        assert_eq!(tail.len(), LOG_TAIL_LINES_MAX);
        assert!(tail[0].as_str().starts_with("900 "));
        assert!(tail[199].as_str().starts_with("1099 "));
    }
}
