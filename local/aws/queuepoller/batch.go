package queuepoller

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

const (
	deleteTries   = 3
	deletePause   = 200 * time.Millisecond
	deleteTimeout = 10 * time.Second
)

// process delivers the received messages in one event, or in several one after the other if
// one would be too large.
func (p *Poller) process(messages []types.Message, arrived time.Time) {
	rest, groups := p.enter(messages)
	defer func() { p.leave(groups, nil) }()
	stopped := map[string]bool{} // groups in which another message would break the order
	for len(rest) > 0 {
		var batch []types.Message
		var records [][]byte
		batch, records, rest = p.cut(rest, stopped)
		if len(batch) == 0 {
			continue
		}
		d, done, back := p.invoke(batch, event(records), arrived)
		for _, m := range back {
			stopped[p.group(m)] = p.queue.fifo
		}
		// Before the deletion: from then on the queue hands out the next message
		// of the group, and another poll may be faster than this one.
		p.leave(groups, rest)
		p.delete(done)
		p.options.Observer.delivered(d)
	}
}

// cut takes as many messages as fit into one event, and leaves out those that cannot be
// delivered now: they are redelivered.
func (p *Poller) cut(messages []types.Message, stopped map[string]bool) (batch []types.Message, records [][]byte, rest []types.Message) {
	size := len(frame)
	for i, m := range messages {
		if stopped[p.group(m)] {
			continue
		}
		encoded, err := p.queue.encode(m)
		if err == nil && len(frame)+len(encoded) > runtime.MaxEventBytes {
			err = fmt.Errorf("it makes an event of %d bytes, Lambda takes at most %d", len(frame)+len(encoded), runtime.MaxEventBytes)
		}
		if err != nil {
			p.options.Observer.trouble("message %s is redelivered: %w", aws.ToString(m.MessageId), err)
			stopped[p.group(m)] = p.queue.fifo
			continue
		}
		if len(batch) > 0 {
			size += len(",")
		}
		if size += len(encoded); size > runtime.MaxEventBytes {
			return batch, records, messages[i:]
		}
		batch, records = append(batch, m), append(records, encoded)
	}
	return batch, records, nil
}

// invoke gives the function one event and reports which of its messages are done and which
// are redelivered. Close does not interrupt it, and waits for it.
func (p *Poller) invoke(batch []types.Message, event []byte, arrived time.Time) (d Delivery, done, back []types.Message) {
	d = Delivery{Messages: batch, Arrived: arrived, Event: event}
	d.Result, d.Err = p.function.Invoke(context.WithoutCancel(p.ctx), event, nil)
	d.Returned, d.Reason = p.options.verdict(d.Result, d.Err, ids(batch))
	failed := make(map[string]bool, len(d.Returned))
	for _, id := range d.Returned {
		failed[id] = true
	}
	for _, m := range batch {
		if failed[aws.ToString(m.MessageId)] {
			back = append(back, m)
		} else {
			done = append(done, m)
		}
	}
	return d, done, back
}

func ids(messages []types.Message) []string {
	list := make([]string, len(messages))
	for i, m := range messages {
		list[i] = aws.ToString(m.MessageId)
	}
	return list
}

// delete deletes messages. What it cannot delete is redelivered.
func (p *Poller) delete(messages []types.Message) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), deleteTimeout)
	defer cancel()
	left := messages
	for try := 1; len(left) > 0; try++ {
		entries := make([]types.DeleteMessageBatchRequestEntry, len(left))
		for i, m := range left {
			entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle}
		}
		out, err := p.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(p.url), Entries: entries})
		if err != nil {
			p.options.Observer.trouble("delete from %s, try %d of %d: %w", p.url, try, deleteTries, err)
		} else {
			left = p.refused(left, out.Failed, try)
		}
		if len(left) == 0 || try == deleteTries {
			return
		}
		select {
		case <-time.After(deletePause):
		case <-ctx.Done():
			return
		}
	}
}

// refused are the messages whose deletion the queue has refused.
func (p *Poller) refused(messages []types.Message, failed []types.BatchResultErrorEntry, try int) (left []types.Message) {
	for _, entry := range failed {
		i, err := strconv.Atoi(aws.ToString(entry.Id))
		if err != nil || i < 0 || i >= len(messages) {
			p.options.Observer.trouble("delete from %s: the queue names an entry %q that was not sent", p.url, aws.ToString(entry.Id))
			continue
		}
		p.options.Observer.trouble("delete message %s, try %d of %d: %s: %s", aws.ToString(messages[i].MessageId), try, deleteTries,
			aws.ToString(entry.Code), aws.ToString(entry.Message))
		left = append(left, messages[i])
	}
	return left
}

// group is a message's group in a FIFO queue. Messages of standard queues may have a group
// too, which does not order them.
func (p *Poller) group(m types.Message) string {
	if !p.queue.fifo {
		return ""
	}
	return m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
}

// enter marks the groups of the messages, and leaves out those of groups that
// another batch has.
func (p *Poller) enter(messages []types.Message) (free []types.Message, groups map[string]bool) {
	if !p.queue.fifo {
		return messages, nil
	}
	groups = map[string]bool{}
	var early []types.Message
	p.mu.Lock()
	for _, m := range messages {
		group := p.group(m)
		if p.busy[group] && !groups[group] {
			early = append(early, m)
			continue
		}
		p.busy[group], groups[group] = true, true
		free = append(free, m)
	}
	p.mu.Unlock()
	for _, m := range early {
		p.options.Observer.trouble("message %s of group %q came while the group is still being processed; it is redelivered. "+
			"Is the visibility time-out, %v, long enough for the function?", aws.ToString(m.MessageId), p.group(m), p.queue.visibility)
	}
	return free, groups
}

// leave releases the groups that have no message in the rest.
func (p *Poller) leave(groups map[string]bool, rest []types.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for group := range groups {
		if slices.ContainsFunc(rest, func(m types.Message) bool { return p.group(m) == group }) {
			continue
		}
		delete(p.busy, group)
		delete(groups, group)
	}
}
