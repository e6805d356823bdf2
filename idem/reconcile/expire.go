package reconcile

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Remover removes expired items: a *dynamostore.Remover.
type Remover interface {
	RemoveExpired(ctx context.Context, q protocol.ExpiredQuery) (protocol.ExpiredPage, error)
}

const (
	// expireGrace is more than clocks differ by, and about as long as TTL takes.
	expireGrace = 24 * time.Hour
	// segments are the equal parts of a table. Each has at most some thousand items, even of a
	// table with tens of millions of them.
	segments = 8192
	// A sweep begins no further segment once it has looked at expireItems items, or made
	// expireRequests requests. A request looks at expirePage items at most.
	expireItems    = 5000
	expireRequests = 100
	expirePage     = 250
)

// expire removes expired items from some segments, from one on that is drawn at random. So it
// need not be kept which were the last ones, and two sweepers rarely take the same.
func (s *sweep) expire(ctx context.Context) error {
	if s.opts.Expired == nil || s.opts.DryRun {
		return nil
	}
	q := protocol.ExpiredQuery{
		Segment: rand.IntN(segments), Segments: segments,
		Before: s.r.now().Add(-s.r.opts.Margin - expireGrace), Limit: expirePage,
	}
	looked, requests := 0, 0
	for ctx.Err() == nil {
		page, err := s.opts.Expired.RemoveExpired(ctx, q)
		s.report.Expired += page.Removed
		if err != nil && ctx.Err() == nil {
			s.report.problem("%v", err)
			return err
		}
		looked, requests = looked+page.Looked, requests+1
		if q.Page = page.Next; q.Page != "" {
			continue
		}
		if page.Done || looked >= expireItems || requests >= expireRequests {
			return nil
		}
		q.Segment = (q.Segment + 1) % segments
	}
	return nil
}
