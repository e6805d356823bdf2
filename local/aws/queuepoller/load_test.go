package queuepoller

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/queue/queuetest"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

const (
	loadInstances   = 3
	loadReceives    = 3
	loadVisibility  = 2 * time.Second
	loadTimeout     = time.Second
	loadGroupSize   = 5
	loadPoisonEvery = 49 // at most one in a group
)

// load is a run of many messages against a real function whose processes fail in
// every way and are killed.
type load struct {
	t      *testing.T
	count  int
	fifo   bool
	queue  queuetest.Queue
	log    string
	pool   *runtime.Pool
	kill   chan struct{}
	killed int
	broken int // polls whose reply was lost

	mu       sync.Mutex
	received map[int][]receipt // by message
	batches  int
}

// receipt is what became of one delivery of one message.
type receipt struct {
	count            int  // as the queue counts
	back, stay, late bool // returned; succeeded but undeleted; overdue or close to it
}

func TestNothingIsLostUnderFailuresAndKills(t *testing.T) {
	count := 300
	if os.Getenv("IDEM_LONG") == "1" {
		count = 2000
	}
	queuetest.Endpoint(t) // skips before the function is built
	path := filepath.Join(t.TempDir(), "fn")
	out, err := exec.Command("go", "build", "-o", path, "./testdata/fn").CombinedOutput()
	require.NoError(t, err, string(out))
	for name, fifo := range map[string]bool{"standard": false, "fifo": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &load{t: t, count: count, fifo: fifo, received: map[int][]receipt{}, kill: make(chan struct{}, 1)}
			l.queue = queuetest.New(t, queuetest.Spec{FIFO: fifo, MaxReceives: loadReceives, Attributes: map[types.QueueAttributeName]string{
				types.QueueAttributeNameVisibilityTimeout: strconv.Itoa(int(loadVisibility.Seconds())),
			}})
			began := time.Now()
			l.run(path)
			l.check()
			t.Logf("%d messages, %d batches, %d kills in %v", l.count, l.batches, l.killed, time.Since(began).Round(time.Millisecond))
		})
	}
}

func poison(n int) bool { return n%loadPoisonEvery == 7 }

// group spreads the messages over groups of five, in turns.
func (l *load) group(n int) int { return n % (l.count / loadGroupSize) }

// run sends everything and returns when the queue is empty.
func (l *load) run(path string) {
	t := l.t
	l.log = filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(l.log, nil, 0o600))
	var err error
	l.pool, err = runtime.Start(t.Context(), runtime.Function{
		Path: path, Timeout: loadTimeout, MaxInstances: loadInstances, Env: []string{"FN_LOG=" + l.log, "FN_SEED=1"},
	}, nil)
	require.NoError(t, err)
	defer l.pool.Close()
	for from := 0; from < l.count; from += 10 {
		l.send(from)
	}
	poller, err := Start(t.Context(), l.queue.Client, l.queue.URL, l.pool, &Options{
		ReportBatchItemFailures: true, MaxConcurrency: loadInstances, FunctionTimeout: loadTimeout,
		Observer: Observer{Delivered: l.delivered, Trouble: l.trouble},
	})
	require.NoError(t, err)
	var killer sync.WaitGroup
	over := make(chan struct{})
	killer.Go(func() { l.killNow(over) })
	waitFor(t, 5*time.Minute, func() bool { return queuetest.Held(t, l.queue.Client, l.queue.URL) == 0 })
	poller.Close()
	close(over)
	killer.Wait()
}

func (l *load) send(from int) {
	var entries []types.SendMessageBatchRequestEntry
	for n := from; n < min(from+10, l.count); n++ {
		e := types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(n)), MessageBody: aws.String(fmt.Sprintf(`{"n":%d,"poison":%v}`, n, poison(n))),
		}
		if l.fifo {
			e.MessageGroupId, e.MessageDeduplicationId = aws.String(fmt.Sprint("g", l.group(n))), aws.String(strconv.Itoa(n))
		}
		entries = append(entries, e)
	}
	out, err := l.queue.Client.SendMessageBatch(l.t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &l.queue.URL, Entries: entries})
	require.NoError(l.t, err)
	require.Empty(l.t, out.Failed)
}

func number(t *testing.T, m types.Message) int {
	var body struct{ N *int }
	if err := json.Unmarshal([]byte(*m.Body), &body); err != nil || body.N == nil {
		t.Errorf("body %q: %v", *m.Body, err)
		return -1
	}
	return *body.N
}

// delivered notes what became of each message. Every sixth batch is the sign
// to kill somebody.
func (l *load) delivered(d Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range d.Messages {
		n := number(l.t, m)
		count, err := strconv.Atoi(m.Attributes["ApproximateReceiveCount"])
		if err != nil {
			l.t.Errorf("message %d: %v", n, err)
		}
		l.received[n] = append(l.received[n], receipt{
			count: count,
			back:  slices.Contains(d.Returned, *m.MessageId),
			stay:  slices.Contains(d.Undeleted, *m.MessageId),
			late:  d.Took > loadVisibility-loadVisibility/8,
		})
	}
	l.batches++
	if l.batches%6 == 0 {
		select {
		case l.kill <- struct{}{}:
		default:
		}
	}
}

// trouble counts polls that broke off; anything else is no part of this.
func (l *load) trouble(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Log(err)
	if strings.HasPrefix(err.Error(), "queuepoller: poll ") {
		l.broken++
	}
}

// killNow kills a process that works on something, at every sign, until over is
// closed.
func (l *load) killNow(over <-chan struct{}) {
	random := rand.New(rand.NewPCG(1, 2))
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-l.kill:
		case <-over:
			return
		}
		for killed := false; !killed; {
			select {
			case <-look.C:
			case <-over:
				return
			}
			if busy := l.pool.InFlight(); len(busy) > 0 {
				// It may have gone by itself meanwhile.
				killed = l.pool.Kill(busy[random.IntN(len(busy))].PID) == nil
			}
		}
		l.killed++
	}
}

// dead takes everything out of the dead-letter queue.
func (l *load) dead() map[int]int {
	all := map[int]int{}
	for _, m := range queuetest.Drain(l.t, l.queue.Client, l.queue.DeadURL) {
		all[number(l.t, m)]++
	}
	return all
}

// check holds what the poller saw against the dead-letter queue and against what
// the function wrote down.
func (l *load) check() {
	t := l.t
	dead := l.dead()
	starts, done := l.readLog()
	require.Greater(t, l.killed, l.count/100, "processes were killed")
	late, innocent, lost := 0, 0, 0
	for n := range l.count {
		receipts := l.received[n]
		require.NotEmpty(t, receipts, "message %d was never delivered", n)
		last := receipts[len(receipts)-1]
		if slices.ContainsFunc(receipts, func(r receipt) bool { return r.late || r.stay }) {
			// It may have been received again while it was being processed.
			late++
			require.True(t, dead[n] == 1 || done[n] != nil, "message %d is lost", n)
			continue
		}
		received := 0
		for i, r := range receipts {
			require.Greater(t, r.count, received, "message %d: %+v", n, receipts)
			received = r.count
			require.Equal(t, i < len(receipts)-1 || dead[n] == 1, r.back, "message %d comes again if and only if it failed", n)
		}
		if dead[n] > 0 {
			require.Equal(t, 1, dead[n], "message %d", n)
			received = loadReceives // exactly: what is missing was lost with a reply
			if !poison(n) {
				innocent++
			}
		} else {
			require.False(t, poison(n), "poison %d got through", n)
			require.Contains(t, done[n], strconv.Itoa(last.count), "message %d was deleted, so the function had done it", n)
		}
		require.LessOrEqual(t, len(receipts), received, "message %d", n)
		lost += received - len(receipts)
	}
	for n := range l.received {
		require.Less(t, n, l.count)
	}
	require.LessOrEqual(t, late, l.count/10, "nearly all were settled in time, else this shows little")
	require.LessOrEqual(t, lost, 10*l.broken, "every receive is a delivery, but for replies that were lost")
	if l.fifo {
		l.checkOrder(starts, dead)
	}
	t.Logf("%d in the dead-letter queue, %d of them not poison, %d settled late, %d receives lost with %d replies", len(dead), innocent, late, lost, l.broken)
}

// checkOrder: a message is begun only when all before it in its group are
// through, so once one has begun none before it begins again.
func (l *load) checkOrder(starts []int, dead map[int]int) {
	at := map[int]int{} // group → message that was begun last
	for _, n := range starts {
		g := l.group(n)
		before, any := at[g]
		if !any {
			before = g
		}
		require.GreaterOrEqual(l.t, n, before, "group %d goes back", g)
		for skipped := before + l.count/loadGroupSize; skipped < n; skipped += l.count / loadGroupSize {
			require.Equal(l.t, 1, dead[skipped], "group %d: %d was left out", g, skipped)
		}
		at[g] = n
	}
	require.Len(l.t, at, l.count/loadGroupSize, "all groups")
}

// readLog returns the messages in the order in which they were begun, and with
// which of their receives each was done.
func (l *load) readLog() (starts []int, done map[int][]string) {
	f, err := os.Open(l.log)
	require.NoError(l.t, err)
	defer f.Close()
	done = map[int][]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var word, receive string
		var n int
		_, err := fmt.Sscan(lines.Text(), &word, &n, &receive)
		require.NoError(l.t, err, lines.Text())
		if word == "start" {
			starts = append(starts, n)
		} else {
			done[n] = append(done[n], receive)
		}
	}
	require.Equal(l.t, l.count, len(slices.Collect(maps.Keys(l.received))))
	return starts, done
}
