//! The longest common subsequence of two byte strings.
