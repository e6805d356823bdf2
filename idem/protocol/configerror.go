package protocol

import "strings"

// ConfigError is a mistake in how the library is set up, found before anything
// runs where possible.
type ConfigError struct {
	// What names the thing that is set up wrongly. Problem says how, and what to do.
	What, Problem string
}

func (e *ConfigError) Error() string {
	if strings.HasPrefix(e.Problem, "is ") {
		return "idem: " + e.What + " " + e.Problem
	}
	return "idem: " + e.What + ": " + e.Problem
}
