// Package fingerprint says when two inputs are the same: a [protocol.Fingerprint] is the
// digest which distinguishes a retry from another request under the same key.
//
// [JSON] is for one JSON text, [Bytes] for anything else, and a [Builder] puts several
// fields together, as for an HTTP request. A [Select] says which parts of a JSON text
// count.
package fingerprint
