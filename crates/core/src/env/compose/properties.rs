//! What holds for the composer whatever it is given.

use super::{compose, tests::def};
use crate::env::definition::Tier;
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_order_of_input_plays_no_part(mut input in proptest::collection::vec((0..4u8, 0..3u8, 0..4u8, 0..3u8), 0..12), seed in any::<u64>()) {
        let tiers = [Tier::Inherited, Tier::Profile, Tier::Managed, Tier::Identity];
        let make = |input: &[(u8, u8, u8, u8)]| compose(input.iter().map(|(k, v, t, o)| def(&format!("K{k}"), &v.to_string(), tiers[usize::from(*t)], &format!("o{o}"))));
        let first = make(&input);
        let len = input.len().max(1);
        input.rotate_left(usize::try_from(seed % len as u64).unwrap());
        input.reverse();
        prop_assert_eq!(make(&input), first);
    }

    #[test]
    fn merging_a_merged_git_list_again_changes_nothing(keys in proptest::collection::vec("[a-c]\\.[a-c]", 1..6)) {
        let mut input = vec![def("GIT_CONFIG_COUNT", &keys.len().to_string(), Tier::Request, "a")];
        for (n, key) in keys.iter().enumerate() {
            input.push(def(&format!("GIT_CONFIG_KEY_{n}"), key, Tier::Request, "a"));
            input.push(def(&format!("GIT_CONFIG_VALUE_{n}"), "v", Tier::Request, "a"));
        }
        let once = compose(input.clone()).unwrap();
        let again = compose(input.into_iter().chain(once.definitions().cloned())).unwrap();
        prop_assert!(once.definitions().eq(again.definitions()));
    }
}
