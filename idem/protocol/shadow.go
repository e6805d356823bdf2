package protocol

import "strings"

// shadowSuffix ends the ids of records of shadow: no call outside of it finds them.
const shadowSuffix = "#shadow"

// ShadowID returns the id of the record of calls in shadow with the key whose record has the id.
func ShadowID(id string) string { return id + shadowSuffix }

// LiveID returns the id of the key's record in live mode, and whether the id is of its record of
// shadow.
func LiveID(id string) (live string, shadow bool) { return strings.CutSuffix(id, shadowSuffix) }
