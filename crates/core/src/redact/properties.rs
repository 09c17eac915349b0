//! What holds for all secrets and all texts; `PROPTEST_CASES` says how many are tried.
//!
//! The texts are made of pieces of the secrets, so that most of them hold some, cut some short, and let some overlap.

use std::ops::Range;

use proptest::{collection::vec, prelude::*, sample::Index};

use super::{HOLD_FOR_TERMINAL, MASK, Redactor, encodings::Form, patterns};

/// What a text is made of.
#[derive(Clone, Debug)]
enum Piece {
    /// A part of a pattern.
    Part(Index, Index, Index),
    /// A whole pattern.
    Whole(Index),
    /// Something else.
    Other(Vec<u8>),
    /// Ordinary text, that no pattern has.
    Filling(usize),
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        3 => any::<(Index, Index, Index)>().prop_map(|(of, from, to)| Piece::Part(of, from, to)),
        3 => any::<Index>().prop_map(Piece::Whole),
        1 => vec(any::<u8>(), 0..6).prop_map(Piece::Other),
        2 => (0..12_usize).prop_map(Piece::Filling),
    ];
    vec(piece, 0..7)
}

fn text(pieces: &[Piece], patterns: &[Form]) -> Vec<u8> {
    let mut text = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Other(bytes) => text.extend_from_slice(bytes),
            Piece::Filling(count) => text.extend(b"  ~~ ~  ~~~  ".iter().take(*count)),
            _ if patterns.is_empty() => {}
            Piece::Whole(of) => text.extend_from_slice(of.get(patterns).as_slice()),
            Piece::Part(of, from, to) => {
                let pattern = of.get(patterns);
                let (a, b) = (from.index(pattern.len()), to.index(pattern.len() + 1));
                text.extend_from_slice(&pattern[a.min(b)..a.max(b)]);
            }
        }
    }
    text
}

/// All places of all patterns, by looking at each.
fn matches(text: &[u8], patterns: &[Form]) -> Vec<Range<usize>> {
    let mut by_first = vec![Vec::new(); 256];
    for pattern in patterns {
        by_first[usize::from(pattern[0])].push(pattern);
    }
    (0..text.len())
        .flat_map(|at| {
            by_first[usize::from(text[at])]
                .iter()
                .filter(move |pattern| text[at..].starts_with(pattern))
                .map(move |pattern| at..at + pattern.len())
        })
        .collect()
}

/// Which bytes are to be masked.
fn marks(text: &[u8], patterns: &[Form]) -> Vec<bool> {
    let mut marks = vec![false; text.len()];
    for place in matches(text, patterns) {
        marks[place].fill(true);
    }
    marks
}

fn starred(text: &[u8], marks: &[bool]) -> Vec<u8> {
    text.iter()
        .zip(marks)
        .map(|(byte, mark)| if *mark { b'*' } else { *byte })
        .collect()
}

fn collapsed(text: &[u8], marks: &[bool]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, (byte, mark)) in text.iter().zip(marks).enumerate() {
        if !mark {
            out.push(*byte);
        } else if at == 0 || !marks[at - 1] {
            out.extend_from_slice(MASK.as_bytes());
        }
    }
    out
}

/// Streams `text`, cut after the given numbers of bytes, over and over; also checks that no more is held than allowed.
fn streamed(
    redactor: &Redactor,
    text: &[u8],
    cuts: &[usize],
    hold_from: usize,
    most: usize,
) -> Vec<u8> {
    let mut stream = redactor.stream(hold_from);
    let mut out = Vec::new();
    let mut rest = text;
    for len in cuts.iter().cycle() {
        let (piece, next) = rest.split_at((*len).min(rest.len()));
        out.extend_from_slice(stream.push(piece));
        assert!(stream.held() <= most, "{} held", stream.held());
        rest = next;
        if rest.is_empty() {
            break;
        }
    }
    out.extend(stream.finish());
    out
}

/// Short patterns over few letters: they overlap and contain each other often.
fn tangled() -> impl Strategy<Value = Vec<Form>> {
    let letter = prop_oneof![4 => Just(b'a'), 2 => Just(b'b'), 1 => Just(b'c')];
    vec(vec(letter, 6..11).prop_map(Form::new), 0..6)
}

/// Values as people have them, and as they do not.
fn values() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let value = prop_oneof![
        3 => "[a-z0-9/+*\"\\\\\u{e4} -]{4,14}".prop_map(String::into_bytes),
        1 => "[a-z]{0,8}\r?\n[{}a-c ]{0,8}\n[a-z-]{4,9}\n?".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..16),
    ];
    // Of a secret with stars in it a mask can become a part: the one exception that is documented.
    let value = value.prop_filter("stars", |value| {
        !value.windows(3).any(|three| three == b"***")
    });
    vec(value, 0..3)
}

proptest! {
    #[test]
    fn c14_masking_agrees_with_a_plain_search_however_the_stream_is_cut(
        patterns in tangled(),
        pieces in pieces(),
        cuts in vec(1..9_usize, 1..4),
    ) {
        let text = text(&pieces, &patterns);
        let redactor = Redactor::of_forms(patterns.clone(), 0).unwrap();
        let most = patterns.iter().map(|pattern| pattern.len()).max().unwrap_or(0);
        let marks = marks(&text, &patterns);
        let expected = starred(&text, &marks);

        prop_assert_eq!(&streamed(&redactor, &text, &[text.len() + 1], 1, most), &expected);
        prop_assert_eq!(&streamed(&redactor, &text, &cuts, 1, most), &expected);
        prop_assert_eq!(&streamed(&redactor, &text, &[1], 1, most), &expected);
        prop_assert_eq!(&streamed(&redactor, &expected, &cuts, 1, most), &expected, "masked again");

        let whole = redactor.redact(&text).into_owned();
        prop_assert_eq!(&whole, &collapsed(&text, &marks));
        prop_assert_eq!(&*redactor.redact(&whole), &*whole, "masked again");

        // A terminal: what is shown of a secret is less than is held from, at its beginning.
        let terminal = streamed(&redactor, &text, &cuts, HOLD_FOR_TERMINAL, most);
        prop_assert_eq!(terminal.len(), text.len());
        for (at, byte) in terminal.iter().enumerate() {
            prop_assert!(*byte == text[at] || (*byte == b'*' && marks[at]));
        }
        for place in matches(&text, &patterns) {
            let rest = place.start + HOLD_FOR_TERMINAL - 1..place.end;
            prop_assert!(terminal[rest].iter().all(|byte| *byte == b'*'));
        }
    }

    #[test]
    fn c14_no_form_of_a_value_survives_and_nothing_else_is_touched(
        values in values(),
        pieces in pieces(),
        cuts in vec(1..30_usize, 1..4),
    ) {
        let forms: Vec<Form> = values.iter().flat_map(|value| patterns::of_value(value)).collect();
        let redactor = Redactor::of_forms(forms.clone(), 0).unwrap();
        let text = text(&pieces, &forms);
        let marks = marks(&text, &forms);
        let expected = starred(&text, &marks);
        let most = forms.iter().map(|form| form.len()).max().unwrap_or(0);

        prop_assert_eq!(&streamed(&redactor, &text, &cuts, 1, most), &expected);
        let whole = redactor.redact(&text).into_owned();
        prop_assert_eq!(&whole, &collapsed(&text, &marks));
        prop_assert!(matches(&expected, &forms).is_empty() && matches(&whole, &forms).is_empty());
        let lossy = String::from_utf8_lossy(&text);
        let masked = redactor.redact_str(&lossy);
        prop_assert_eq!(&*redactor.redact_str(&masked), &*masked, "masked again");
        let broken = |text: &str| text.matches(char::REPLACEMENT_CHARACTER).count();
        prop_assert!(broken(&masked) <= broken(&lossy));
    }
}
