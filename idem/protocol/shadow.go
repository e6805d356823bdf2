package protocol

import "strings"

// shadowSuffix ends the ids of records of shadow: no call outside of it finds them.
const shadowSuffix = "#shadow"

// ShadowID returns the id of the record of calls in shadow with the key whose record has the id.
func ShadowID(id string) string { return id + shadowSuffix }

// LiveID returns the id of the key's record in live mode, and whether the id is of its record of
// shadow.
func LiveID(id string) (live string, shadow bool) { return strings.CutSuffix(id, shadowSuffix) }

// UnobservedError says why it is not known what the live mode would have answered to a call in
// shadow, such as a body that is not read ahead of the handler. The call is reported as not observed,
// and not as refused.
type UnobservedError struct{ Err error }

func (e *UnobservedError) Error() string { return e.Err.Error() }

func (e *UnobservedError) Unwrap() error { return e.Err }
