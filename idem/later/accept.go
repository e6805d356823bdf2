package later

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/codec"
	"github.com/idem-go/idempotency/idem/protocol"
)

// DefaultStartWithin is how long accepted work may wait for its worker, unless the call says
// otherwise.
const DefaultStartWithin = protocol.DefaultStartWithin

// EnqueueFunc adds the message that brings the worker to the [idem.Unit] of work, with the id of
// the record, such as with dynamostore.TxOf or pgstore.Transact. An error accepts nothing.
type EnqueueFunc func(ctx context.Context, id string) error

// Accept records the input under the key, for a worker that runs [Work], and returns when that
// is certain. The message that enqueue adds and the record commit together. A nil enqueue is for
// workers that the table's stream brings. The work may wait for [DefaultStartWithin].
//
// While the work waits or runs, the result's Outcome has a StatusID and the RecordState, and no
// value; so has the same call made again. Later it has the outcome, as from [idem.Run], and a
// recorded failure is a [*idem.RecordedError]. Another input under the key is [idem.ErrKeyReused].
// Accept is safe for concurrent use.
func Accept[Out, In any](
	ctx context.Context, e *idem.Engine, key idem.Key, in In, enqueue EnqueueFunc,
) (idem.Result[Out], error) {
	var res idem.Result[Out]
	if e == nil {
		return res, &idem.ConfigError{What: "call", Problem: "the engine is nil: make one with idem.New"}
	}
	if err := codec.CheckResult(reflect.TypeFor[Out]()); err != nil {
		return res, err
	}
	if s, ok := any(in).(string); ok && !utf8.ValidString(s) {
		return res, &idem.ConfigError{What: "input",
			Problem: "it is a string that is not valid UTF-8, which JSON cannot keep: pass bytes as []byte"}
	}
	fp, err := codec.Fingerprint(&in)
	if err != nil {
		return res, err
	}
	input, err := json.Marshal(&in)
	if err != nil {
		return res, &idem.ConfigError{What: "input", Problem: fmt.Sprintf("%T cannot be encoded as JSON: %v", in, err)}
	}
	res.Outcome, err = e.Execute(ctx, Call(idem.Call{Key: key, Fingerprint: fp}, protocol.Later{Input: input}, enqueue))
	if err == nil && res.Outcome.RecordState == idem.Completed {
		err = codec.DecodeResult(res.Outcome.Body, &res.Value)
	}
	return res, err
}

// Call makes a call accept its operation for later, in bytes: see [Accept].
func Call(c idem.Call, l protocol.Later, enqueue EnqueueFunc) idem.Call {
	c.Later, c.Run = &l, func(ctx context.Context) idem.Answer {
		if enqueue == nil {
			return idem.Answer{}
		}
		return idem.Answer{Err: enqueue(ctx, c.Key.ID())}
	}
	return c
}
