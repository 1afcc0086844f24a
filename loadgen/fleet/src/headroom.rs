//! How near a run came to what limits its generator: whoever pushes a fleet further wants to know what gives way first.

use std::fmt;

use record::Micros;

/// The most that a run has taken, beside what there is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Headroom {
    /// Processor time of all processes, the embedded portal's too, in the busiest second, as a share of one core.
    pub(crate) cores: Used<f64>,
    /// Open files of the process that had most.
    pub(crate) files: Used<u64>,
    /// Resident memory of all processes.
    pub(crate) memory_bytes: Used<u64>,
    /// How late 99 % of the judged requests were at most; none where none was judged.
    pub(crate) lateness: Used<Option<Micros>>,
}

/// How much of something was taken.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Used<T> {
    pub(crate) most: T,
    pub(crate) of: T,
}

impl<T: Copy + PartialOrd> Used<T> {
    /// So much is taken now.
    pub(crate) fn see(&mut self, now: T) {
        if now > self.most {
            self.most = now;
        }
    }
}

fn percent(most: f64, of: f64) -> f64 {
    match of > 0.0 {
        true => 100.0 * most / of,
        false => 0.0,
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cores,
            files,
            memory_bytes,
            lateness,
        } = self;
        let us = |time: Option<Micros>| time.map_or(0.0, |time| time.0 as f64);
        let said = |time: Option<Micros>| time.map_or_else(|| "-".to_owned(), |t| t.to_string());
        let limits = [
            ("processors", percent(cores.most, cores.of)),
            ("open files", percent(files.most as f64, files.of as f64)),
            (
                "memory",
                percent(memory_bytes.most as f64, memory_bytes.of as f64),
            ),
            ("lateness", percent(us(lateness.most), us(lateness.of))),
        ];
        let nearest = limits
            .iter()
            .max_by(|one, other| one.1.total_cmp(&other.1))
            .map_or("", |(what, _)| what);
        write!(f, "of what limits the generator it took at most: ")?;
        for (what, percent) in limits {
            write!(f, "{what} {percent:.0} %, ")?;
        }
        write!(
            f,
            "so {nearest} would be the first limit (lateness: 99 % within {}, {} allowed)",
            said(lateness.most),
            said(lateness.of)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_limit_is_named() {
        let mut headroom = Headroom {
            cores: Used { most: 0.0, of: 2.0 },
            files: Used {
                most: 10_100,
                of: 20_000,
            },
            memory_bytes: Used {
                most: 1 << 30,
                of: 8 << 30,
            },
            lateness: Used {
                most: Some(Micros::from_ms(2)),
                of: Some(Micros::from_ms(10)),
            },
        };
        for seen in [0.4, 1.5, 0.3] {
            headroom.cores.see(seen);
        }
        assert_eq!(
            headroom.to_string(),
            "of what limits the generator it took at most: processors 75 %, open files 50 %, memory 12 %, lateness 20 %, so \
             processors would be the first limit (lateness: 99 % within 2 ms, 10 ms allowed)"
        );
    }

    #[test]
    fn a_run_that_judged_nothing_was_not_punctual() {
        let mut headroom = Headroom::default();
        headroom.lateness.of = Some(Micros::from_ms(100));
        let said = headroom.to_string();
        assert!(
            said.ends_with("(lateness: 99 % within -, 100 ms allowed)"),
            "{said}"
        );
    }

    #[test]
    fn a_run_that_took_nothing_divides_by_nothing() {
        assert!(Headroom::default().to_string().contains("memory 0 %"));
    }
}
