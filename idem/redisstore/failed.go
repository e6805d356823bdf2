package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem/protocol"
)

// What a server answers that has done nothing, by the first word.
var refusals = map[string]protocol.StoreError{
	// It has no room or no time. It may well answer what is recorded.
	"OOM": {Down: true, Throttled: true}, "BUSY": {Down: true, Throttled: true}, "TRYAGAIN": {Down: true, Throttled: true},
	"NOREPLICAS": {Down: true, Throttled: true}, "MISCONF": {Down: true, Throttled: true},
	"max": {Down: true, Throttled: true}, // "max number of clients reached", to a new connection
	// It is another one, or it is not ready.
	"MOVED": {Down: true}, "ASK": {Down: true}, "CLUSTERDOWN": {Down: true}, "LOADING": {Down: true},
	"READONLY": {Down: true}, "MASTERDOWN": {Down: true}, "UNBLOCKED": {Down: true}, "NOSCRIPT": {Down: true},
	// It works, for others.
	"NOAUTH": {}, "WRONGPASS": {}, "NOPERM": {}, "NOPROTO": {}, "CROSSSLOT": {},
}

// failed says what an error means: whether a change may have been made, and whether the server works. write says that
// the call would have made one.
func failed(err error, write bool) error {
	if answer, ok := errors.AsType[*valkey.ValkeyError](err); ok {
		word, _, _ := strings.Cut(answer.Error(), " ")
		out, known := refusals[word]
		out.Err, out.Ambiguous = err, write && !known // a script that fails has done what it did before
		return &out
	}
	out := &protocol.StoreError{Err: err, Down: ofConnection(err)}
	dial, ok := errors.AsType[*net.OpError](err)
	unsent := ok && dial.Op == "dial" || errors.Is(err, valkey.ErrNoSlot)
	out.Ambiguous = write && !unsent
	return out
}

// ofConnection reports whether the error is one of a connection to a server. Any other one, such as that of
// ClientOption.AuthCredentialsFn, says nothing about the server, also if it wraps one of another connection.
func ofConnection(err error) bool {
	switch err {
	case io.EOF, io.ErrUnexpectedEOF, context.Canceled, valkey.ErrClosing, valkey.ErrNoSlot, valkey.ErrNoAddr:
		return true
	}
	switch err.(type) {
	case net.Error, *tls.CertificateVerificationError: // of the net, or that the time is over
		return true
	}
	return false
}

// notOurs is the error of what no version of this package has written.
func notOurs(name string) error {
	return fmt.Errorf("%w: redisstore: %q is of another program", protocol.ErrRecordUnreadable, name)
}
