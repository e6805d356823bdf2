package streampoller

import (
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
)

// shard is read by one goroutine, so its records are delivered in their order.
type shard struct {
	*Poller
	id, parent string
	started    bool
	done       chan struct{} // closed when it has been read and delivered to its end

	iterator *string
	last     string // the sequence number that was read last
	pending  []record
	bytes    int       // of pending
	since    time.Time // when the first of pending was read
}

// run reads and delivers until the shard's end; it reports false if the poller
// ends before.
func (s *shard) run() bool {
	pause := s.Backoff
	for s.ctx.Err() == nil {
		if s.iterator == nil {
			if err := s.open(); err != nil {
				s.Logf("streampoller: shard %s: %v", s.id, err)
				s.pause(pause)
				pause = min(2*pause, DefaultMaxBackoff)
				continue
			}
		}
		out, err := s.client.GetRecords(s.ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: s.iterator})
		if err != nil {
			if s.ctx.Err() != nil {
				return false
			}
			s.Logf("streampoller: shard %s: %v", s.id, err)
			var expired *types.ExpiredIteratorException
			var trimmed *types.TrimmedDataAccessException
			if errors.As(err, &trimmed) {
				s.last = "" // what is left begins at the horizon
			}
			if errors.As(err, &expired) || errors.As(err, &trimmed) {
				s.iterator = nil
			}
			s.pause(pause)
			pause = min(2*pause, DefaultMaxBackoff)
			continue
		}
		pause = s.Backoff
		s.gather(out.Records)
		s.iterator = out.NextShardIterator
		ended := s.iterator == nil
		if !s.deliver(ended) {
			return false
		}
		if ended {
			return true
		}
		if len(out.Records) == 0 {
			s.pause(s.wait())
		}
	}
	return false
}

// open gets an iterator behind what was read.
func (s *shard) open() (err error) {
	at := types.ShardIteratorTypeTrimHorizon
	if s.last != "" {
		at = types.ShardIteratorTypeAfterSequenceNumber
	}
	s.iterator, err = s.iteratorAt(at)
	return err
}

func (s *shard) iteratorAt(at types.ShardIteratorType) (*string, error) {
	in := &dynamodbstreams.GetShardIteratorInput{StreamArn: &s.stream, ShardId: &s.id, ShardIteratorType: at}
	if at == types.ShardIteratorTypeAfterSequenceNumber {
		in.SequenceNumber = &s.last
	}
	out, err := s.client.GetShardIterator(s.ctx, in)
	if err != nil {
		return nil, err
	}
	if out.ShardIterator == nil {
		return nil, errors.New("the stream gave no iterator")
	}
	return out.ShardIterator, nil
}

// gather adds what the filters let through to what is to be delivered.
func (s *shard) gather(records []types.Record) {
	for i := range records {
		r, err := newRecord(&records[i], s.stream)
		if err != nil {
			s.Logf("%v", err)
			continue
		}
		s.last = r.sequence
		pass := s.pass(r)
		s.count(func(st *Stats) {
			st.Read++
			if !pass {
				st.Filtered++
			}
		})
		if !pass {
			continue
		}
		if len(s.pending) == 0 {
			s.since = time.Now()
		}
		s.pending = append(s.pending, r)
		s.bytes += len(r.json) + 1
	}
}

func (s *shard) pass(r record) bool {
	for _, f := range s.filters {
		if ok, err := f.Match(r.json); err != nil {
			s.Logf("%v", err)
		} else if ok {
			return true
		}
	}
	return len(s.filters) == 0
}

// deliver sends what is ready: full batches, and the rest if its window is over or
// the shard is.
func (s *shard) deliver(ended bool) bool {
	for len(s.pending) > 0 {
		n := s.fit()
		full := n == s.BatchSize || n < len(s.pending)
		if !full && !ended && time.Since(s.since) < s.BatchWindow {
			return true
		}
		batch := s.pending[:n:n]
		s.pending = s.pending[n:]
		for _, r := range batch {
			s.bytes -= len(r.json) + 1
		}
		if !(&delivery{shard: s}).run(batch, 0) {
			return false
		}
		s.since = time.Now()
	}
	return true
}

// fit is how many of the pending records make the next event.
func (s *shard) fit() int {
	size := len(eventHead) + len(eventTail)
	for n, r := range s.pending {
		size += len(r.json) + 1
		if n == s.BatchSize || n > 0 && size > maxEvent {
			return n
		}
	}
	return len(s.pending)
}

// wait is how long nothing is to be done: the poll interval, or what is left of
// the window.
func (s *shard) wait() time.Duration {
	if len(s.pending) == 0 {
		return s.PollInterval
	}
	return max(min(s.PollInterval, s.BatchWindow-time.Since(s.since)), time.Millisecond)
}
