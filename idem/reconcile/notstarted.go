package reconcile

import (
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// handleNotStarted ends work that was accepted for later and that no worker has started in time.
func (s *sweep) handleNotStarted(rec *idem.Record) error {
	why := "no worker has claimed it in the time that its acceptance gave it"
	res := Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "idem: the request was accepted, and no worker has come for it in time; nothing was executed", Code: protocol.CodeNotStarted}}
	if !s.opts.DryRun {
		ctx, cancel := s.share(s.ctx)
		defer cancel()
		if err := s.r.resolve(ctx, rec, res, s.by(why)); err != nil {
			return err
		}
	}
	s.did(notice.NotStarted, rec, idem.Failed, why, nil)
	return nil
}
