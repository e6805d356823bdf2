package secrets

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// settled is how long a record must have been past its expiry for it to be known that nobody has
// kept it: what a scan has read may be some seconds old.
const settled = time.Hour

// Retire takes the oldest secret out of an operation's register, and returns its check value; that
// of no secret is "plain". Scan must look at every record of the store, and
// return the error that look gives; of a record that cannot be read it has the id alone. The operation
// is as it is in ids: percent-encoded. A secret under which a record may live, or which a process may have as its
// current one, is refused, with nothing written.
//
// Records are no longer made under a secret once a newer one is in use everywhere, so that what
// the scan has not found does not come later.
func Retire(ctx context.Context, store protocol.Rotation, operation string, now time.Time,
	scan func(look func(id string, rec *protocol.Record) error) error,
) (check string, err error) {
	reg, err := store.Register(ctx, operation)
	if err != nil {
		return "", err
	}
	bad := func(format string, args ...any) (string, error) {
		return "", &protocol.ConfigError{What: "secrets of operation " + operation, Problem: fmt.Sprintf(format, args...)}
	}
	if reg == nil {
		return bad("there is no register: no process has used it with secrets")
	}
	i := slices.IndexFunc(reg.Secrets, func(s protocol.RegisteredSecret) bool { return !s.Retired })
	if i < 0 || i == len(reg.Secrets)-1 {
		return bad("%s is the only one in use: make a newer one the current one first", reg.Secrets[len(reg.Secrets)-1].Check)
	}
	old, next := reg.Secrets[i], reg.Secrets[i+1]
	if from := next.Since.Add(markLife); now.Before(from) {
		return bad("%s was replaced by %s at %s, and a process may still have it as its current one: it can be retired from %s on",
			old.Check, next.Check, next.Since.Format(time.RFC3339), from.Format(time.RFC3339))
	}
	live, unreadable, last := 0, 0, ""
	err = scan(func(id string, rec *protocol.Record) error {
		switch {
		case !under(reg, i, id):
		case rec == nil:
			unreadable, last = unreadable+1, id
		case rec.State != protocol.Moved && !rec.Expired(now.Add(-settled)):
			live, last = live+1, id
		}
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case live+unreadable > 0:
		return bad("%d records live under %s, and %d under it cannot be read, such as %s: wait until they have expired, and resolve what is open", live, old.Check, unreadable, last)
	}
	after := reg.Clone()
	after.Version++
	after.Secrets[i].Retired = true
	err = store.SetRegister(ctx, now, *after)
	if _, refused := errors.AsType[*protocol.ConflictError](err); refused {
		return bad("the register has changed in the meantime, and nothing was retired: look at it, and try again")
	}
	return old.Check, err
}

// under reports whether the record with the id is under the register's secret with that place.
func under(reg *protocol.Register, place int, id string) bool {
	live, shadow := protocol.LiveID(id)
	rest, digest, ok := cutLast(live)
	if _, operation, _ := strings.Cut(rest, "#"); shadow || !ok || operation != reg.Operation {
		return false
	}
	sum, err := base64.RawURLEncoding.DecodeString(digest)
	if err != nil || len(sum) < tagSize {
		return true // nobody knows
	}
	has := func(s protocol.RegisteredSecret) bool { return string(tag(s.Check)) == string(sum[:tagSize]) }
	if reg.Secrets[place].Check == forPlain {
		return !slices.ContainsFunc(reg.Secrets, has)
	}
	return has(reg.Secrets[place])
}

func cutLast(id string) (before, after string, found bool) {
	i := strings.LastIndexByte(id, '#')
	if i < 0 {
		return "", "", false
	}
	return id[:i], id[i+1:], true
}
