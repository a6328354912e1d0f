//! Sessions, workers, configuration, the session and admin planes, wiring.
