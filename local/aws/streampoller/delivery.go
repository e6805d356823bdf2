package streampoller

import (
	"errors"
	"time"
)

// delivery brings one batch to its end: delivered, or discarded.
type delivery struct {
	*shard
	invocations int
	last        error
}

// run delivers the batch until it is done with. retries counts the failed
// deliveries of these records. It reports false if the poller ends before.
func (d *delivery) run(batch []record, retries int) bool {
	for pause := d.Backoff; ; pause = min(2*pause, DefaultMaxBackoff) {
		if batch = d.dropOld(batch); len(batch) == 0 {
			return true
		}
		done, failed := d.once(batch)
		if done < 0 {
			return false
		}
		d.count(func(s *Stats) { s.Delivered += done })
		batch = batch[done:]
		if len(batch) == 0 {
			return true
		}
		if done > 0 {
			// The checkpoint has moved: what is left has not been tried as often.
			retries, pause = 0, d.Backoff
		}
		if failed && d.BisectBatchOnFunctionError && len(batch) > 1 {
			half := len(batch) / 2
			return d.run(batch[:half:half], retries) && d.run(batch[half:], retries)
		}
		retries++
		if d.MaxRetryAttempts == NoRetry || d.MaxRetryAttempts > 0 && retries > d.MaxRetryAttempts {
			d.discard(batch, RetryAttemptsExhausted)
			return true
		}
		if !d.pause(pause) {
			return false
		}
	}
}

// once invokes the function. It returns how many records are done with, -1 if the
// poller ends; failed is set if the whole batch failed.
func (d *delivery) once(batch []record) (done int, failed bool) {
	if d.ctx.Err() != nil {
		return -1, false
	}
	d.count(func(s *Stats) { s.Invocations++ })
	d.invocations++
	answer, err := d.invoke(d.ctx, eventOf(batch))
	if err != nil && d.stops(err) {
		return -1, false
	}
	done = len(batch)
	if err == nil && d.ReportBatchItemFailures {
		done, err = checkpoint(answer, batch)
	}
	switch {
	case err != nil:
		done, failed = 0, true
		d.last = err
		d.Logf("streampoller: shard %s: %d records from %s on: %v", d.id, len(batch), batch[0].sequence, err)
	case done < len(batch):
		d.last = errors.New("the function reported record " + batch[done].sequence + " as failed")
	default:
		return done, false
	}
	d.count(func(s *Stats) { s.Failures++ })
	return done, failed
}

// dropOld discards the records that have become too old; the oldest come first.
func (d *delivery) dropOld(batch []record) []record {
	if d.MaxRecordAge == 0 {
		return batch
	}
	n := 0
	for n < len(batch) && !batch[n].created.IsZero() && time.Since(batch[n].created) > d.MaxRecordAge {
		n++
	}
	if n > 0 {
		d.discard(batch[:n], RecordAgeExceeded)
	}
	return batch[n:]
}

func (d *delivery) discard(batch []record, condition string) {
	d.count(func(s *Stats) { s.Discarded += len(batch) })
	first, last := batch[0], batch[len(batch)-1]
	out := Discarded{
		Condition: condition, Invocations: d.invocations, Err: d.last,
		StreamARN: d.stream, ShardID: d.id,
		FirstSequenceNumber: first.sequence, LastSequenceNumber: last.sequence,
		FirstArrival: first.created, LastArrival: last.created,
	}
	for _, r := range batch {
		out.Records = append(out.Records, r.json)
	}
	d.OnFailure(out)
}
