package streampoller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// shard is read by one goroutine, so its records are delivered in their order.
type shard struct {
	*Poller
	id, parent string
	done       chan struct{} // closed when it has been read and delivered to its end

	iterator *string
	last     string // the sequence number that was read last
	behind   bool   // the next read begins with that record
}

// run reads and delivers until the shard's end, or that of the poller.
func (s *shard) run() {
	for pause := s.Backoff; s.ctx.Err() == nil; {
		out, err := s.read()
		if err != nil {
			s.log("shard %s: %v", s.id, err)
			s.pause(pause)
			pause = min(2*pause, maxBackoff)
			continue
		}
		pause = s.Backoff
		for pending := s.records(out.Records); len(pending) > 0; {
			n := s.fit(pending)
			if !s.deliver(pending[:n]) {
				return
			}
			pending = pending[n:]
		}
		if len(out.Records) > 0 {
			s.Done(s.id, s.last) // those behind the last batch do not match the filter
		}
		if s.iterator = out.NextShardIterator; s.iterator == nil {
			close(s.done)
			return
		}
		if len(out.Records) == 0 {
			s.pause(s.PollInterval)
		}
	}
}

// read reads what follows the last record that was read.
func (s *shard) read() (*dynamodbstreams.GetRecordsOutput, error) {
	out, err := s.next()
	if _, expired := errors.AsType[*types.ExpiredIteratorException](err); expired {
		s.iterator = nil
	}
	if _, trimmed := errors.AsType[*types.TrimmedDataAccessException](err); trimmed {
		s.last, s.iterator = "", nil // the remaining records begin at the horizon
	}
	if err != nil || !s.behind {
		return out, err
	}
	s.behind = false
	if len(out.Records) == 0 || out.Records[0].Dynamodb == nil || *out.Records[0].Dynamodb.SequenceNumber != s.last {
		err = fmt.Errorf("its record %s is not there: all that are there are delivered", s.last)
		s.last, s.iterator = "", nil
		return nil, err
	}
	out.Records = out.Records[1:]
	return out, nil
}

// next reads at the iterator. A new one begins with the last record that was read: one behind it would also be had
// where that record is not there, and would pass over all before it.
func (s *shard) next() (*dynamodbstreams.GetRecordsOutput, error) {
	if s.iterator == nil {
		in := &dynamodbstreams.GetShardIteratorInput{StreamArn: &s.stream, ShardId: &s.id,
			ShardIteratorType: types.ShardIteratorTypeTrimHorizon}
		if s.last != "" {
			in.ShardIteratorType, in.SequenceNumber = types.ShardIteratorTypeAtSequenceNumber, &s.last
		}
		out, err := s.client.GetShardIterator(s.ctx, in)
		if err != nil {
			return nil, err
		}
		s.iterator, s.behind = out.ShardIterator, s.last != ""
	}
	return s.client.GetRecords(s.ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: s.iterator})
}

// records are those that match the filter.
func (s *shard) records(read []types.Record) (pending []record) {
	for i := range read {
		r, err := newRecord(&read[i], s.stream)
		if err != nil {
			s.log("%v", err)
			continue
		}
		s.last = r.sequence
		if s.filter.matches(r.json) {
			pending = append(pending, r)
		}
	}
	return pending
}

// fit is how many of the pending records make the next event.
func (s *shard) fit(pending []record) int {
	size := len(eventHead) + len(eventTail)
	for n, r := range pending {
		size += len(r.json) + 1
		if n == s.BatchSize || n > 0 && size > runtime.MaxEventBytes {
			return n
		}
	}
	return len(pending)
}

// deliver delivers a batch to the function until all its records are done. It reports false
// if the poller ends before.
func (s *shard) deliver(batch []record) bool {
	for pause := s.Backoff; s.ctx.Err() == nil; pause = min(2*pause, maxBackoff) {
		done, err := s.once(batch)
		if errors.Is(err, runtime.ErrClosed) {
			s.cancel()
		}
		if err != nil {
			s.log("shard %s: %d records from %s on: %v", s.id, len(batch), batch[0].sequence, err)
		}
		if done > 0 {
			pause = s.Backoff // the remaining records have not been tried as often
		}
		s.delivered.Add(int64(done))
		if done > 0 {
			s.Done(s.id, batch[done-1].sequence)
		}
		if batch = batch[done:]; len(batch) == 0 {
			return true
		}
		s.pause(pause)
	}
	return false
}

// once invokes the function, and returns how many records are done.
func (s *shard) once(batch []record) (done int, err error) {
	answer, err := s.invoke(context.WithoutCancel(s.ctx), eventOf(batch))
	switch {
	case err != nil:
		return 0, err
	case s.WholeBatch:
		return len(batch), nil
	}
	ids := make([]string, len(batch))
	for i, r := range batch {
		ids[i] = r.sequence
	}
	failed, err := runtime.BatchItemFailures(answer, ids)
	if err != nil {
		return 0, err
	}
	first := slices.IndexFunc(ids, func(id string) bool { return slices.Contains(failed, id) })
	if first < 0 {
		return len(batch), nil
	}
	return first, nil
}
