//! What a person sees and what keys do, on a terminal that is a text: pictures to be read beside the tests, properties for
//! every size and look.

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails with the line that was wrong"
)]

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;
use record::agents::{
    AgentEvent, AgentLog, AgentName, AgentRow, AgentsAsked, AgentsShown, IdleWhy,
};
use record::judgement::Bound;
use record::label::Label as _;
use record::series::Gauge;
use record::snapshot::{Arrivals, GeneratorNow, LastSync, Percentiles, Rate};
use record::timeline::{Became, Done, Step};
use record::{Endpoint, Judgement, Micros, Outcome, Quantity, Snapshot, Verdict};
use top::{Key, Look, Screen, Wish};

const COLORS: Look = Look {
    color: true,
    ascii: false,
};

fn percentiles(p50: u64, p95: u64, p99: u64) -> Option<Percentiles> {
    Some(Percentiles {
        p50: Micros(p50),
        p95: Micros(p95),
        p99: Micros(p99),
    })
}

fn judgement(text: &str, verdict: Verdict, figure: Option<Quantity>) -> Judgement {
    Judgement {
        text: text.to_owned(),
        verdict,
        figure,
        of: None,
        bound: Bound::AtMost(Quantity::Count(0)),
        place: "whole run".to_owned(),
    }
}

/// A step that went well, one that was refused in part, and one that is to come.
fn timeline() -> Vec<Step> {
    let step = |due, what: &str, done| Step {
        due: Micros::from_seconds(due),
        what: what.to_owned(),
        became: match done {
            Some(done) => Became::Done(done),
            None => Became::ToCome,
        },
    };
    let moment = |ms| Micros::from_ms(ms);
    let why = "cluster_busy: an operation runs".to_owned();
    vec![
        step(
            25,
            "operation `snapshot.save` for 100 % of the clusters",
            Some(Done::new(moment(25_040), 1_000, [])),
        ),
        step(
            45,
            "operation `cluster.restore` for 10 % of the clusters, run by the first server",
            Some(Done::new(moment(45_100), 100, vec![why; 3])),
        ),
        step(
            75,
            "the portal ends and starts again with what it knew",
            None,
        ),
    ]
}

/// A second of a run of a thousand agents that come up over twenty seconds, and whose portal has a bad time from the 30th
/// to the 40th.
fn second(second: u64) -> Snapshot {
    let started = (second * 50).min(1_000);
    let bad = (30..40).contains(&second);
    let mut snapshot = Snapshot {
        at: Micros(second * 1_000_000 + 3_000),
        duration: Micros::from_seconds(120),
        agents: 1_000,
        lateness: percentiles(90, 400 + second, 1_100 + second * 7),
        judged_at: (second >= 5).then(|| Micros::from_seconds(second - second % 5)),
        timeline: timeline().into(),
        arrivals: match started {
            1_000 => Arrivals::Over,
            _ => Arrivals::GoOn,
        },
        last_sync: Some(LastSync {
            behind: if bad { 120 } else { 0 },
            ago: percentiles(3_100_000, 5_800_000, 6_000_000).unwrap(),
            longest: Micros(6_400_000),
        }),
        generator: Some(GeneratorNow {
            processes: 1,
            cpu_share: 0.2 + (second % 7) as f64 / 50.0,
            rss_bytes: (40 << 20) + started * 30_000,
            files: started + 42,
            files_limit: 20_000,
        }),
        ..Snapshot::default()
    };
    for (gauge, count) in [
        (Gauge::Waiting, 1_000 - started),
        (Gauge::Enrolling, if started < 1_000 { 12 } else { 0 }),
        (Gauge::BackingOff, if bad { 80 } else { 2 }),
        (Gauge::ToldToWait, if bad { 40 } else { 0 }),
        (Gauge::Idle, 1),
        (Gauge::Updating, 5),
        (Gauge::Connected, started),
        (Gauge::InFlight, 3),
        (Gauge::Operating, 17),
        (Gauge::Converged, started.saturating_sub(10)),
        (Gauge::Enrolled, started),
    ] {
        snapshot.gauges[gauge] = count;
    }
    let elsewhere = snapshot.gauges.iter().filter(|(gauge, _)| {
        use Gauge::{BackingOff, Enrolling, Idle, ToldToWait, Updating, Waiting};
        [Waiting, Enrolling, Updating, BackingOff, ToldToWait, Idle].contains(gauge)
    });
    let elsewhere: u64 = elsewhere.map(|(_, count)| count).sum();
    snapshot.gauges[Gauge::Healthy] = 1_000_u64.saturating_sub(elsewhere);

    let slow = if bad { 40 } else { 1 };
    let wave = 1_000 + (second % 5) * 150;
    let mut rate = |endpoint, planned, successes, response, service| {
        snapshot.last_second[endpoint] = Rate {
            planned,
            started: planned,
            successes: Some(successes),
            response,
            service,
        };
    };
    rate(
        Endpoint::Sync,
        started / 6,
        if bad { started / 8 } else { started / 6 },
        percentiles(wave * slow, wave * 2 * slow, wave * 3 * slow),
        percentiles(
            wave * slow - 300,
            wave * 2 * slow - 400,
            wave * 3 * slow - 500,
        ),
    );
    if second <= 20 {
        let times = percentiles(2_100, 3_900, 5_200);
        rate(
            Endpoint::Enroll,
            50,
            50,
            times,
            percentiles(1_900, 3_700, 5_000),
        );
        let times = percentiles(800, 900, 950);
        rate(
            Endpoint::Manifest,
            50,
            50,
            times,
            percentiles(700, 800, 850),
        );
    }

    let requests = [
        (Endpoint::Enroll, Outcome::Ok, started),
        (Endpoint::Manifest, Outcome::Ok, started),
        (Endpoint::Sync, Outcome::Ok, second * 160),
        (
            Endpoint::Sync,
            Outcome::from_label("too_many_requests").unwrap(),
            bad.into(),
        ),
        (Endpoint::Sync, Outcome::from_label("replayed").unwrap(), 3),
        (Endpoint::Sync, Outcome::TimedOutAnswer, second / 6),
        (Endpoint::Events, Outcome::Reset, 1),
    ];
    for (endpoint, outcome, count) in requests {
        for _ in 0..count {
            snapshot.account.planned(endpoint);
            snapshot.account.started(endpoint);
            snapshot.account.ended(endpoint, outcome);
        }
    }
    snapshot.judgements = vec![
        Judgement {
            of: Some(1_000),
            ..judgement(
                "all agents are enrolled",
                Verdict::SoFar,
                Some(Quantity::Count(started)),
            )
        },
        judgement(
            "99 % of sync answers come within 250 ms",
            Verdict::Pass,
            Some(Quantity::Micros(Micros(48_200))),
        ),
        judgement(
            "at least 99.9 % of sync requests end in ok",
            Verdict::Fail,
            Some(Quantity::Share(0.998_2)),
        ),
        judgement(
            "all operations snapshot.save succeed",
            Verdict::NoData,
            None,
        ),
        judgement(
            "the busiest second is at most 3 times the mean one",
            Verdict::Pass,
            Some(Quantity::Ratio(2.32)),
        ),
        judgement("no identity twice", Verdict::Pass, Some(Quantity::Count(0))),
    ];
    snapshot
}

/// A screen that has seen a minute of it.
fn minute(look: Look) -> Screen {
    let mut screen = Screen::new(look);
    for at in 1..=60 {
        screen.see(second(at));
        if at % 20 == 0 {
            screen.log(&format!(
                "\u{1b}[33mWARN\u{1b}[0m agent nodes-{at} backs off"
            ));
        }
    }
    screen
}

fn drawn(screen: &Screen, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    terminal.backend().buffer().clone()
}

fn picture(screen: &Screen, width: u16, height: u16) -> String {
    let buffer = drawn(screen, width, height);
    let rows = buffer.content().chunks(usize::from(width));
    let text = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    text.map(|row| format!("{}\n", row.trim_end())).collect()
}

fn pressed(mut screen: Screen, keys: &str) -> Screen {
    for key in keys.chars() {
        assert_eq!(screen.press(Key::Char(key)), None);
    }
    screen
}

#[test]
fn the_overview_at_the_size_that_every_terminal_has() {
    insta::assert_snapshot!(picture(&minute(COLORS), 80, 24));
}

#[test]
fn the_overview_with_room() {
    insta::assert_snapshot!(picture(&minute(COLORS), 200, 60));
}

#[test]
fn the_overview_in_words() {
    insta::assert_snapshot!(picture(&minute(COLORS), 40, 12));
}

#[test]
fn the_run_in_one_line() {
    insta::assert_snapshot!(picture(&minute(COLORS), 10, 3));
}

#[test]
fn the_other_views() {
    for view in ["2", "3", "4", "5", "6"] {
        let screen = pressed(minute(COLORS), view);
        insta::assert_snapshot!(format!("view_{view}"), picture(&screen, 80, 24));
    }
}

/// As a fleet answers what the screen asks.
fn agents(asked: &AgentsAsked) -> AgentsShown {
    let row = |index: u64| AgentRow {
        name: AgentName {
            cluster: format!("clu_nodes-{index}"),
            node: format!("nodes-{index}"),
        },
        idle: (index % 10 == 8).then_some(IdleWhy::Revoked),
        state: match index % 10 {
            7 => Gauge::BackingOff,
            8 => Gauge::Idle,
            9 => Gauge::Updating,
            _ => Gauge::Healthy,
        },
        operating: index == 3,
        synced_ago: (index != 4).then_some(Micros::from_ms(index * 170)),
        generation: index % 3,
        last_call: (index != 4).then_some((Endpoint::Sync, Outcome::Ok)),
        clock_offset_ms: if index == 5 { -90_000 } else { 0 },
    };
    let all = (1..=300).map(row);
    let matching: Vec<AgentRow> = all
        .filter(|row| asked.lets_through(&row.name, row.state, row.idle))
        .collect();
    AgentsShown {
        filter: asked.filter.clone(),
        matching: matching.len() as u64,
        skipped: asked.skip.min(matching.len() as u64),
        rows: matching
            .into_iter()
            .skip(usize::try_from(asked.skip).unwrap())
            .take(usize::try_from(asked.rows).unwrap())
            .collect(),
        followed: asked.followed.clone().map(|name| AgentLog {
            name,
            events: (0..20)
                .map(|at| AgentEvent {
                    at: Micros::from_ms(at * 700),
                    what: format!("sync: ok, {at} ms after it was due"),
                })
                .collect(),
        }),
    }
}

/// Presses keys, and the fleet answers after each.
fn looked(mut screen: Screen, keys: &[Key]) -> Screen {
    for key in keys {
        assert_eq!(screen.press(*key), None, "{key:?}");
        let mut next = second(61);
        next.agents_shown = screen.asks().as_ref().map(agents);
        screen.see(next);
    }
    screen
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

#[test]
fn an_agent_is_looked_for_and_followed() {
    let keys = [
        typed("4/quit"),
        vec![Key::Backspace; 4],
        typed("ES-1"),
        vec![Key::Enter],
    ];
    let filtered = looked(minute(COLORS), &keys.concat());
    insta::assert_snapshot!("agents_filtered", picture(&filtered, 80, 24));
    let far = looked(
        filtered,
        &[vec![Key::PageDown; 7], vec![Key::Up, Key::Enter]].concat(),
    );
    insta::assert_snapshot!("agents_followed", picture(&far, 80, 24));
    insta::assert_snapshot!("agents_in_words", picture(&far, 40, 12));
    // Escape lets go of the one that is followed, then of the filter.
    let all = looked(far, &[Key::Escape, Key::Escape]);
    let shown = picture(&all, 80, 24);
    assert!(shown.contains("─ Agents: 300 ─"), "{shown}");
    assert!(!shown.contains("Events of"), "{shown}");
}

// However long the list, the chosen one is seen, and only a part of the list is asked for.
#[test]
fn the_chosen_agent_is_always_seen() {
    let mut screen = looked(minute(COLORS), &typed("4"));
    for (key, times) in [
        (Key::Down, 150),
        (Key::PageDown, 40),
        (Key::Up, 7),
        (Key::Home, 1),
    ] {
        for _ in 0..times {
            screen = looked(screen, &[key]);
            for (width, height) in [(80, 24), (200, 60), (40, 12)] {
                let shown = picture(&screen, width, height);
                assert_eq!(shown.matches(" > nodes-").count(), 1, "{shown}");
            }
            assert!(screen.asks().unwrap().rows <= 200);
        }
    }
    assert_eq!(looked(screen, &typed("1")).asks(), None);
}

#[test]
fn what_is_typed_is_text_and_no_key() {
    let mut screen = looked(minute(COLORS), &typed("4/"));
    for char in "qQsfp?1".chars() {
        assert_eq!(screen.press(Key::Char(char)), None, "{char}");
    }
    assert_eq!(screen.asks().unwrap().filter, "qQsfp?1");
    assert_eq!(screen.press(Key::Enter), None);
    assert_eq!(screen.press(Key::Char('s')), Some(Wish::SnapshotNow));
    assert_eq!(screen.press(Key::Char('q')), Some(Wish::Quit));
}

#[test]
fn the_help_lies_above_the_view() {
    insta::assert_snapshot!(picture(&pressed(minute(COLORS), "?"), 80, 24));
}

#[test]
fn in_plain_characters() {
    let look = Look {
        color: true,
        ascii: true,
    };
    insta::assert_snapshot!(picture(&minute(look), 80, 24));
}

#[test]
fn a_screen_that_has_seen_nothing_says_so() {
    insta::assert_snapshot!(picture(&Screen::new(COLORS), 80, 24));
}

#[test]
fn keys_choose_views_in_a_circle() {
    let title = |screen: &Screen| picture(screen, 80, 24).lines().next().unwrap().to_owned();
    let mut screen = minute(COLORS);
    for name in [
        "2 Endpoints",
        "3 Time line",
        "4 Agents",
        "5 Generator",
        "6 Log",
        "1 Overview",
    ] {
        screen.press(Key::Tab);
        assert!(title(&screen).contains(&format!("[{name}]")), "{name}");
    }
    screen.press(Key::BackTab);
    assert!(title(&screen).contains("[6 Log]"));
    // There is no seventh view.
    for key in ['7', '0', 'x'] {
        screen.press(Key::Char(key));
        assert!(title(&screen).contains("[6 Log]"), "{key}");
    }
}

#[test]
fn some_keys_are_wishes() {
    let mut screen = minute(COLORS);
    let rows = [
        ('q', Wish::Quit),
        ('Q', Wish::QuitAtOnce),
        ('s', Wish::SnapshotNow),
        ('p', Wish::HoldArrivals),
    ];
    screen.see(second(10));
    for (key, wish) in rows {
        assert_eq!(screen.press(Key::Char(key)), Some(wish));
    }
}

#[test]
fn arrivals_are_held_while_there_are_any() {
    let mut screen = minute(COLORS);
    let mut held = second(10);
    held.arrivals = Arrivals::Held;
    screen.see(held);
    for (width, banner) in [(80, "ARRIVALS HELD 10s/120s"), (40, "HELD 10s/120s")] {
        let shown = picture(&screen, width, 12);
        assert!(shown.contains(banner), "{shown}");
    }
    assert_eq!(screen.press(Key::Char('p')), Some(Wish::HoldArrivals));
    // Once everybody is there, the key says so and nothing is wished.
    screen.see(second(60));
    assert_eq!(screen.press(Key::Char('p')), None);
    let shown = picture(&screen, 80, 24);
    assert!(shown.contains(" everybody has arrived: "), "{shown}");
    assert!(!shown.contains("HELD"), "{shown}");
}

#[test]
fn what_a_key_did_is_said_in_every_view_until_the_next_one() {
    for view in "123456".chars() {
        let mut screen = pressed(minute(COLORS), &view.to_string());
        screen.tells("snapshot-60s.json is in out");
        for (width, height) in [(80, 24), (40, 12)] {
            let shown = picture(&screen, width, height);
            let bottom = shown.lines().last().unwrap();
            assert_eq!(bottom, " snapshot-60s.json is in out", "{shown}");
        }
        // For a while, or until another key.
        let bottom = |screen: &Screen| picture(screen, 80, 24).lines().last().unwrap().to_owned();
        let another = pressed(screen.clone(), "f");
        assert!(bottom(&another).starts_with(" 1-6 Tab "));
        (61..=70).for_each(|at| screen.see(second(at)));
        assert!(bottom(&screen).starts_with(" 1-6 Tab "));
    }
}

#[test]
fn an_endpoint_that_is_idle_has_no_figures() {
    let mut screen = minute(COLORS);
    for narrow in [80, 40] {
        let shown = picture(&pressed(screen.clone(), "2"), narrow, 24);
        let enroll = shown
            .lines()
            .find(|row| row.starts_with(" enroll "))
            .unwrap();
        assert_eq!(enroll.split_whitespace().nth(1), Some("-"), "{shown}");
    }
    // A second in which nothing was due has no lateness either.
    let mut idle = second(61);
    idle.lateness = None;
    screen.see(idle);
    let shown = picture(&pressed(screen, "5"), 80, 24);
    let p99 = shown.lines().find(|row| row.starts_with(" p99 ")).unwrap();
    assert_eq!(p99.split_whitespace().nth(1), Some("-"), "{shown}");
    assert!(shown.contains("max 1.52 ms"), "{shown}");
}

/// Words and numbers of a picture.
fn words_of(shown: &str) -> Vec<&str> {
    shown.split([' ', '\n', ',']).collect()
}

// A column is there or not: what is there is whole.
#[test]
fn no_number_is_cut_however_narrow() {
    let full: Vec<String> = "12345"
        .chars()
        .map(|view| picture(&looked(minute(COLORS), &typed(&view.to_string())), 250, 80))
        .collect();
    for width in 20..120 {
        for (view, full) in "12345".chars().zip(&full) {
            let mut screen = looked(minute(COLORS), &typed(&view.to_string()));
            // All of it, page by page.
            for _ in 0..8 {
                let shown = picture(&screen, width, 12);
                let body: Vec<&str> = shown.lines().skip(1).take(10).collect();
                let body = body.join("\n");
                let is_number = |word: &&str| {
                    word.len() > 1 && word.chars().all(|c| c.is_ascii_digit() || c == '.')
                };
                let known = words_of(full);
                for number in words_of(&body).into_iter().filter(is_number) {
                    let is_count = body.contains("more lines: Down") || body.contains(" more");
                    assert!(
                        known.contains(&number) || is_count && number.len() < 3,
                        "{width} {view}: {number} is not in\n{full}\n{shown}"
                    );
                }
                screen.press(Key::PageDown);
            }
        }
    }
}

// Of a table that is too wide whole columns are left out, and never the sum of what is.
#[test]
fn a_table_has_whole_columns() {
    for width in 30..120 {
        let requests = picture(&pressed(minute(COLORS), "2"), width, 24);
        let names = requests.lines().nth(2).unwrap();
        assert!(names.ends_with(" all"), "{width}: {requests}");
        let agents = picture(&looked(minute(COLORS), &typed("4")), width, 24);
        for row in agents.lines().skip(2).take(20) {
            assert!(!row.contains('…'), "{width}: {agents}");
        }
    }
    let narrow = picture(&pressed(minute(COLORS), "2"), 40, 24);
    assert!(
        narrow.contains("Requests so far, 1 of 4 endpoints"),
        "{narrow}"
    );
}

#[test]
fn what_has_no_room_is_scrolled_to() {
    for (view, last) in [
        ("1", "no identity twice"),
        ("2", " manifest"),
        ("3", "it knew"),
    ] {
        let mut screen = pressed(minute(COLORS), view);
        let first = picture(&screen, 40, 12);
        assert!(first.contains("more lines: Down"), "{first}");
        screen.press(Key::End);
        let end = picture(&screen, 40, 12);
        assert!(end.contains(last) && !end.contains("more lines"), "{end}");
        // It stands where its end is: one key leads back.
        screen.press(Key::Up);
        assert_ne!(picture(&screen, 40, 12), end);
        screen.press(Key::Home);
        assert_eq!(picture(&screen, 40, 12), first);
    }
}

#[test]
fn a_time_line_says_what_is_done_and_what_is_to_come() {
    let shown = |change: &dyn Fn(&mut Snapshot)| {
        let mut screen = pressed(minute(COLORS), "3");
        let mut next = second(60);
        change(&mut next);
        screen.see(next);
        picture(&screen, 80, 24)
    };
    let over = shown(&|next| {
        next.end = Some(record::snapshot::End {
            verdict: Verdict::Aborted,
            reason: "interrupted".to_owned(),
        });
    });
    assert!(
        over.contains("never came") && !over.contains(" in 15 s"),
        "{over}"
    );
    // Before its moment a step is to come, in a replay as well.
    let before = shown(&|next| next.at = Micros::from_seconds(30));
    assert!(before.contains("1 of 3 done, the next in 15 s"), "{before}");
    let foreign = shown(&|next| {
        let steps = timeline().into_iter();
        let left_out = steps.map(|step| Step {
            became: Became::LeftOut,
            ..step
        });
        next.timeline = left_out.collect();
    });
    assert!(
        foreign.contains("Time line: left out, it is for the embedded portal"),
        "{foreign}"
    );
    let none = shown(&|next| next.timeline = Vec::new().into());
    assert!(none.contains("This scenario has no time line"), "{none}");
}

// What is above an open help has no keys, and the replay below it neither.
#[test]
fn the_help_takes_the_keys_while_it_is_open() {
    let mut screen = pressed(minute(COLORS), "6?");
    let first = picture(&screen, 40, 12);
    assert!(first.contains("more lines: Down"), "{first}");
    let mut seen = first.clone();
    for _ in 0..30 {
        assert_eq!(screen.press(Key::Down), None);
        seen += &picture(&screen, 40, 12);
    }
    for key in ["1 to 6", "hold arrivals", "end at once", "any other"] {
        assert!(seen.contains(key), "{key}: {seen}");
    }
    assert_eq!(screen.press(Key::Home), None);
    assert_eq!(picture(&screen, 40, 12), first);
    for key in [Key::Char('q'), Key::Char(' '), Key::Left] {
        let mut replay = Screen::of_replay(COLORS);
        replay.press(Key::Char('?'));
        assert_eq!(replay.press(key), None, "{key:?}");
        let again = replay.press(key);
        assert!(again.is_some(), "{key:?}: the help is gone");
    }
}

#[test]
fn a_long_line_of_the_log_is_read_to_its_end() {
    let mut screen = Screen::new(COLORS);
    let long = "WARN a line that does not end where the terminal does, at /a/path/without/any/blank/in/it/at/all/to.json";
    screen.log(long);
    screen.press(Key::Char('6'));
    for width in [80, 40, 20] {
        let shown = picture(&screen, width, 24);
        let all: String = shown.split_whitespace().collect();
        let whole: String = long.split_whitespace().collect();
        assert!(all.contains(&whole), "{shown}");
    }
}

#[test]
fn revoked_agents_are_found_by_that_word_and_clusters_are_shown_with_room() {
    let revoked = looked(minute(COLORS), &typed("4/revoked"));
    let shown = picture(&revoked, 80, 24);
    assert!(shown.contains("Agents: 30 with /revoked_"), "{shown}");
    assert!(shown.contains("nodes-8              revoked"), "{shown}");
    assert!(!shown.contains("clu_nodes-8"), "{shown}");
    let wide = picture(&revoked, 120, 24);
    assert!(wide.contains("clu_nodes-8"), "{wide}");
}

// What is chosen in a list is what that list shows, and the next one is on its way.
#[test]
fn a_list_that_is_not_answered_yet_is_waited_for() {
    let mut screen = looked(minute(COLORS), &typed("4"));
    for key in [typed("/des-300"), vec![Key::Enter, Key::Enter]].concat() {
        screen.press(key);
    }
    let shown = picture(&screen, 80, 24);
    assert!(shown.contains("Agents: - with /des-300"), "{shown}");
    assert_eq!(screen.asks().unwrap().followed, None);
    let mut next = second(61);
    next.agents_shown = screen.asks().as_ref().map(agents);
    screen.see(next);
    assert_eq!(screen.asks().unwrap().followed.unwrap().node, "nodes-300");
}

#[test]
fn what_is_frozen_stands_still_until_it_is_not() {
    let mut screen = pressed(minute(COLORS), "f");
    let frozen = picture(&screen, 80, 24);
    assert!(frozen.contains("FROZEN 60s/120s"), "{frozen}");
    screen.see(second(61));
    assert_eq!(picture(&screen, 80, 24), frozen);
    // Another view of the same moment can be looked at meanwhile.
    let endpoints = picture(&pressed(screen.clone(), "2"), 80, 24);
    assert!(endpoints.contains("[2 Endpoints]") && endpoints.contains(" 60s/120s"));
    let thawed = picture(&pressed(screen, "f"), 80, 24);
    assert!(thawed.contains(" 61s/120s") && !thawed.contains("FROZEN"));
}

#[test]
fn the_help_goes_with_the_next_key() {
    let screen = pressed(minute(COLORS), "?");
    for key in ["?", "1"] {
        let text = picture(&pressed(screen.clone(), key), 80, 24);
        assert!(
            !text.contains("─ Keys ─") && text.contains("Fleet:"),
            "{text}"
        );
    }
}

#[test]
fn a_run_that_ends_says_so() {
    let mut screen = minute(COLORS);
    screen.ends();
    assert!(picture(&screen, 80, 24).contains("ENDING 60s/120s"));
}

#[test]
fn the_log_is_scrolled_line_by_line_and_page_by_page() {
    let mut screen = Screen::new(COLORS);
    for line in 0..1_100 {
        screen.log(&format!("line {line}"));
    }
    screen.press(Key::Char('6'));
    let newest = |screen: &Screen| {
        let text = picture(screen, 80, 24);
        let lines: Vec<&str> = text.lines().collect();
        lines[22].to_owned()
    };
    assert_eq!(newest(&screen), "line 1099");
    screen.press(Key::Up);
    screen.press(Key::PageUp);
    assert_eq!(newest(&screen), "line 1088");
    screen.press(Key::PageDown);
    assert_eq!(newest(&screen), "line 1098");
    for _ in 0..200 {
        screen.press(Key::PageUp);
    }
    // A thousand lines are kept.
    assert!(picture(&screen, 80, 24).contains("line 100\n"));
}

/// A snapshot in which everything is as large as can be.
fn huge() -> Snapshot {
    let mut huge = second(35);
    let most = Micros(u64::MAX);
    (huge.at, huge.duration) = (most, most);
    huge.agents = u64::MAX;
    for (_, count) in huge.gauges.iter_mut() {
        *count = u64::MAX;
    }
    for (_, rate) in huge.last_second.iter_mut() {
        rate.planned = u64::MAX / 8;
        rate.successes = Some(u64::MAX / 8);
        rate.response = percentiles(u64::MAX, u64::MAX, u64::MAX);
        rate.service = rate.response;
    }
    huge.generator = Some(GeneratorNow {
        processes: u64::MAX,
        cpu_share: f64::INFINITY,
        rss_bytes: u64::MAX,
        files: u64::MAX,
        files_limit: u64::MAX,
    });
    for number in 0..50 {
        let text = format!("expectation {number} 漢字 é … \u{1f680}");
        huge.judgements
            .push(judgement(&text, Verdict::NoData, None));
    }
    huge
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_size_is_drawn_in_the_look_that_is_wanted(
        width in 1..=250_u16,
        height in 1..=80_u16,
        keys in "[1-5f?s]{0,3}",
        seconds in prop::sample::select(vec![0_u64, 1, 2, 60]),
        is_huge in any::<bool>(),
        color in any::<bool>(),
        ascii in any::<bool>(),
    ) {
        let mut screen = Screen::new(Look { color, ascii });
        for at in 1..=seconds {
            screen.see(second(at));
        }
        if is_huge {
            screen.see(huge());
            screen.log("漢字 \u{1f680} a line that is wider than it is long: 漢字漢字漢字漢字漢字漢字漢字漢字漢字");
        }
        for key in keys.chars() {
            screen.press(Key::Char(key));
        }
        let drawn = drawn(&screen, width, height);
        for cell in drawn.content() {
            if ascii {
                prop_assert!(cell.symbol().bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{cell:?}");
            }
            if !color {
                prop_assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
            }
        }
        // The keys are always there: a word of them where there is room for no more.
        if width >= 20 && height >= 5 {
            let bottom: String = drawn.content()[usize::from(width) * usize::from(height - 1)..]
                .iter()
                .map(|cell| cell.symbol())
                .collect();
            prop_assert!(bottom.starts_with(" 1-6 Tab "), "{bottom}");
        }
    }
}
