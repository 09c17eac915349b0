//! Packs and unpacks tar archives.
