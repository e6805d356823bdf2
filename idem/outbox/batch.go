package outbox

import (
	"context"
	"errors"
	"fmt"
)

// Limits of a service for one request.
type Limits struct {
	// Count of messages, and Bytes of all of them together.
	Count, Bytes int
}

// InBatches sends messages in requests, for a [Sender]. It keeps their order, puts as many
// into a request as the limits allow, and sends one request after the other. send makes one
// request. It returns one error for each message, as [Sender] says, or an error for the
// whole request, which every message then gets. If a request of several messages is
// rejected as a whole ([ErrRejected]), each of them is sent in a request of its own, so that
// no message fails because of another. When the context has ended, no more requests are
// made, and the remaining messages get [ErrNotSent]. A message above the limit is sent in a
// request of its own, which the service may refuse.
func InBatches(ctx context.Context, messages []Message, limits Limits, size func(*Message) int,
	send func(context.Context, []Message) ([]error, error),
) []error {
	errs := make([]error, 0, len(messages))
	for len(messages) > 0 {
		n, bytes := 0, 0
		for n < len(messages) && n < limits.Count {
			if bytes += size(&messages[n]); n > 0 && bytes > limits.Bytes {
				break
			}
			n++
		}
		errs = append(errs, sendBatch(ctx, messages[:n], send)...)
		messages = messages[n:]
	}
	return errs
}

func sendBatch(ctx context.Context, batch []Message, send func(context.Context, []Message) ([]error, error)) []error {
	errs := make([]error, len(batch))
	each := func(err error) []error {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	if err := ctx.Err(); err != nil {
		return each(fmt.Errorf("%w: %w", ErrNotSent, err))
	}
	got, err := send(ctx, batch)
	switch {
	case err == nil && len(got) != len(batch):
		return each(errors.New("outbox: the sender did not return one error for each message: correct the sender"))
	case err == nil:
		return got
	case len(batch) > 1 && errors.Is(err, ErrRejected):
		for i := range batch {
			errs[i] = sendBatch(ctx, batch[i:i+1], send)[0]
		}
		return errs
	}
	return each(err)
}
