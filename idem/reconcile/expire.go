package reconcile

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Remover removes what has expired: a *dynamostore.Remover.
type Remover interface {
	RemoveExpired(ctx context.Context, q protocol.ExpiredQuery) (protocol.ExpiredPage, error)
}

const (
	// expireGrace is beyond what clocks are off, and what TTL takes its time for.
	expireGrace = 24 * time.Hour
	// expireItems bounds what a sweep looks at, expirePage a request.
	expireItems = 5000
	expirePage  = 250
	// maxSegments is the most that a Scan may have
	// (https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Scan.html).
	maxSegments = 1_000_000
)

// expire removes what has expired from one segment. Which one is drawn: so nobody has to
// remember the last one, whatever the schedule, and sweepers beside each other rarely have
// the same.
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
