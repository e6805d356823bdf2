package reconcile

// backlog is what is due of one provider. Each has workers of its own: however slowly a
// provider answers, the questions of the others are not behind its own.
type backlog struct {
	ids     []string // the longest due first
	workers int
}

// maxBacklog bounds the memory for a provider's questions. The next sweep has those beyond.
const maxBacklog = 10_000

// provider is whose answers are waited for about the record. Operations that the sweep does
// not know wait for nobody's.
func (s *Sweeper) provider(id string) string {
	_, name := namesOf(id)
	return s.operations[name].Provider
}

// enqueue leaves the record to the workers of its provider.
func (s *sweep) enqueue(id string) {
	provider := s.provider(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Listed++
	b := s.backlogs[provider]
	if b == nil {
		b = &backlog{}
		s.backlogs[provider] = b
	}
	if len(b.ids) >= maxBacklog {
		s.report.Left++
		return
	}
	b.ids = append(b.ids, id)
	if b.workers < s.opts.Concurrency {
		b.workers++
		s.workers.Go(func() { s.work(b) })
	}
}

// work handles the backlog until it is empty.
func (s *sweep) work(b *backlog) {
	for {
		s.mu.Lock()
		if len(b.ids) == 0 {
			b.workers--
			s.mu.Unlock()
			return
		}
		id := b.ids[0]
		b.ids = b.ids[1:]
		s.mu.Unlock()
		s.record(id)
	}
}
