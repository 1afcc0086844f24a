//! The pictures in the README: of a run that was kept, by the way that `loadgen view` goes.
//!
//! `cargo xtask pictures` draws them anew; otherwise they are compared with what would be drawn.

#![expect(
    clippy::disallowed_methods,
    reason = "the chore that draws is a run of this test, which has no options"
)]

use std::fs;
use std::path::Path;

use record::{RunResult, replay};
use top::{Key, Look, Replay, Screen, picture};

/// Set where pictures are to be drawn anew.
const DRAW: &str = "DRAW_PICTURES";

/// A picture: its name, the view's key, how many seconds before the end, columns and rows.
const PICTURES: [(&str, char, usize, u16, u16); 2] = [
    ("overview", '1', 0, 120, 40),
    ("endpoints", '2', 55, 80, 16),
];

#[test]
fn the_pictures_are_of_the_screen_as_it_is() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    let result = RunResult::read(&fs::read(folder.join("example.json")).unwrap()).unwrap();
    let look = Look {
        color: true,
        ascii: false,
    };
    for (name, view, before_end, columns, rows) in PICTURES {
        let mut screen = Screen::of_replay(look);
        let mut replay = Replay::new(replay::snapshots(&result));
        (0..before_end).for_each(|_| replay.press(Key::Left));
        replay.show(&mut screen);
        screen.press(Key::Char(view));
        let drawn = picture::svg(&screen, columns, rows);
        let file = folder.join(format!("{name}.svg"));
        match std::env::var_os(DRAW) {
            Some(_) => fs::write(&file, drawn).unwrap(),
            None => assert!(
                fs::read_to_string(&file).unwrap_or_default() == drawn,
                "{} is old: cargo xtask pictures",
                file.display()
            ),
        }
    }
}
