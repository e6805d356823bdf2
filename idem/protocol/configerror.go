package protocol

// ConfigError is a mistake in how the library is set up, found before anything
// runs where possible.
type ConfigError struct {
	// What names the thing that is set up wrongly. Problem says how, and what to do.
	What, Problem string
}

func (e *ConfigError) Error() string { return "idem: " + e.What + ": " + e.Problem }
