package streampoller

import (
	"errors"

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
				pause = min(2*pause, maxBackoff)
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
				s.last = "" // the remaining records begin at the horizon
			}
			if errors.As(err, &expired) || errors.As(err, &trimmed) {
				s.iterator = nil
			}
			s.pause(pause)
			pause = min(2*pause, maxBackoff)
			continue
		}
		pause = s.Backoff
		s.gather(out.Records)
		s.iterator = out.NextShardIterator
		ended := s.iterator == nil
		for len(s.pending) > 0 {
			n := s.fit()
			batch := s.pending[:n:n]
			s.pending = s.pending[n:]
			if !s.deliver(batch) {
				return false
			}
		}
		if ended {
			return true
		}
		if len(out.Records) == 0 {
			s.pause(s.PollInterval)
		}
	}
	return false
}

// open gets an iterator after the last record that was read.
func (s *shard) open() error {
	in := &dynamodbstreams.GetShardIteratorInput{StreamArn: &s.stream, ShardId: &s.id, ShardIteratorType: types.ShardIteratorTypeTrimHorizon}
	if s.last != "" {
		in.ShardIteratorType, in.SequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &s.last
	}
	out, err := s.client.GetShardIterator(s.ctx, in)
	if err != nil {
		return err
	}
	if s.iterator = out.ShardIterator; s.iterator == nil {
		return errors.New("the stream gave no iterator")
	}
	return nil
}

// gather adds the records that match the filters to the pending ones.
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
		if pass {
			s.pending = append(s.pending, r)
		}
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
