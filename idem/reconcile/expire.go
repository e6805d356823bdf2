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
	// expireItems bounds how many items a sweep looks at, expirePage how many a request.
	expireItems = 5000
	expirePage  = 250
	// maxSegments is the most that a Scan may have
	// (https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Scan.html).
	maxSegments = 1_000_000
)

// expire removes expired items from one segment, which is drawn at random. Nobody then has
// to remember the last one, and two sweepers rarely take the same one.
func (s *sweep) expire(ctx context.Context) error {
	if s.opts.Expired == nil || s.opts.DryRun {
		return nil
	}
	q := protocol.ExpiredQuery{
		Segment: rand.IntN(s.opts.ExpireSegments), Segments: s.opts.ExpireSegments,
		Before: s.r.now().Add(-s.r.opts.Margin - expireGrace), Limit: expirePage,
	}
	for looked := 0; ctx.Err() == nil; {
		page, err := s.opts.Expired.RemoveExpired(ctx, q)
		s.report.Expired += page.Removed
		if err != nil && ctx.Err() == nil {
			s.report.problem("%v", err)
			return err
		}
		if q.Page = page.Next; q.Page == "" {
			return nil
		}
		if looked += page.Looked; looked >= expireItems {
			s.report.problem("a segment has more than %d items, and what comes after them is not removed: set SweepOptions.ExpireSegments to more than %d",
				expireItems, q.Segments)
			return nil
		}
	}
	return nil
}
