package queue

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/cache"
	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
)

// Set in a copy of this test binary that runs as another process.
const helperEnv = "QUEUE_TEST_HELPER"

func TestMain(m *testing.M) { testmain.Run(m, testmain.Role{Env: helperEnv, Main: helper}) }

// helper starts a server, says so, and waits to be killed.
func helper(string) error {
	srv, err := Start(context.Background(), "", "", func(string, ...any) {})
	if err != nil {
		return err
	}
	fmt.Println(srv.PID(), srv.Endpoint())
	select {}
}

// installedCache is the user's cache, once the package is there. The test is skipped
// where it cannot be had, or fails if IDEM_REQUIRE_DYNAMODB is 1.
func installedCache(t *testing.T) string {
	t.Helper()
	childtest.Need(t, "queue server", install)
	folder, err := cache.Folder("")
	require.NoError(t, err)
	return folder
}

var install = sync.OnceValues(func() (string, error) {
	if _, err := findNode(context.Background()); err != nil {
		return "", err
	}
	return Package.Install(context.Background(), "", func(string, ...any) {})
})

// started is a server that ends with the test.
func started(t *testing.T) *child.Server {
	t.Helper()
	srv, err := Start(t.Context(), installedCache(t), "", t.Logf)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	return srv
}

func requireAnswers(t *testing.T, endpoint string) {
	t.Helper()
	_, err := NewClient(endpoint).ListQueues(t.Context(), &sqs.ListQueuesInput{})
	require.NoError(t, err)
}

func TestServerListensOnLoopbackOnlyAndEndsWithClose(t *testing.T) {
	srv := started(t)
	pid := srv.PID()
	childtest.RequireLoopbackOnly(t, pid, srv.Endpoint())
	requireAnswers(t, srv.Endpoint())
	require.Contains(t, srv.Source(), Package.String())

	require.NoError(t, srv.Close())
	require.NoError(t, srv.Close(), "closing again does nothing")
	<-srv.Ended()
	childtest.RequireRefused(t, srv.Endpoint())
	require.True(t, childtest.Ended(pid))
}

// A connection that the server closes while it is idle breaks the request that its
// client sends at that moment. A server that would announces when, in Keep-Alive.
func TestServerClosesNoIdleConnection(t *testing.T) {
	reply, err := http.Get(started(t).Endpoint())
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	require.False(t, reply.Close)
	require.Empty(t, reply.Header.Get("Keep-Alive"))
}

func TestServerEndsWhenTheParentIsKilled(t *testing.T) {
	parent, pid, endpoint := childtest.Rerun(t, helperEnv, cache.Env+"="+installedCache(t))
	requireAnswers(t, endpoint)
	require.NoError(t, parent.Process.Kill())
	childtest.RequireEnded(t, pid)
	childtest.RequireRefused(t, endpoint)
}

// The end of its input is enough where the kernel does not help.
func TestServerEndsWithItsInput(t *testing.T) {
	dir, err := Package.Install(t.Context(), installedCache(t), func(string, ...any) {})
	require.NoError(t, err)
	node, err := findNode(t.Context())
	require.NoError(t, err)
	childtest.RunToEndOfInput(t, serveCommand(node, dir, ""), func(endpoint string) { requireAnswers(t, endpoint) })
}

// A poll that is broken off takes no messages with it.
func TestBrokenOffPollTakesNothing(t *testing.T) {
	srv := started(t)
	c := NewClient(srv.Endpoint())
	for _, fifo := range []bool{false, true} {
		var group, dedup *string
		if fifo {
			group, dedup = aws.String("g"), aws.String("d")
		}
		q, err := Create(t.Context(), c, Spec{Name: "broken", FIFO: fifo})
		require.NoError(t, err)

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &q.URL, WaitTimeSeconds: 20})
		require.Error(t, err)
		cancel()
		requireAnswers(t, srv.Endpoint()) // by then the server has seen that connection end

		_, err = c.SendMessage(t.Context(), &sqs.SendMessageInput{
			QueueUrl: &q.URL, MessageBody: aws.String("hello"), MessageGroupId: group, MessageDeduplicationId: dedup,
		})
		require.NoError(t, err)
		got, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &q.URL, WaitTimeSeconds: 10,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		require.NoError(t, err)
		require.Len(t, got.Messages, 1)
		require.Equal(t, "1", got.Messages[0].Attributes["ApproximateReceiveCount"], "the broken poll does not count")
	}
}

// A message of a standard queue keeps its group, in the dead-letter queue too, and its group
// orders nothing.
func TestStandardQueueKeepsGroups(t *testing.T) {
	c := NewClient(started(t).Endpoint())
	q, err := Create(t.Context(), c, Spec{Name: "fair", MaxReceives: 1,
		Attributes: map[types.QueueAttributeName]string{types.QueueAttributeNameVisibilityTimeout: "0"}})
	require.NoError(t, err)
	require.Equal(t, "arn:aws:sqs:us-east-1:000000000000:fair", q.ARN)
	_, err = c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &q.URL, MessageBody: aws.String("a"),
		MessageGroupId: aws.String("acme")})
	require.NoError(t, err)
	_, err = c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &q.URL, MessageBody: aws.String("b")})
	require.NoError(t, err)
	text := types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String("x")}
	batch, err := c.SendMessageBatch(t.Context(),
		&sqs.SendMessageBatchInput{QueueUrl: &q.URL, Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("0"), MessageBody: aws.String("c"), MessageGroupId: aws.String("acme"),
				MessageAttributes: map[string]types.MessageAttributeValue{"name": text}},
			{Id: aws.String("1"), MessageBody: aws.String("d")},
		}})
	require.NoError(t, err)
	require.Len(t, batch.Successful, 2)
	// A second receive moves what was received once.
	got := map[string]map[string]string{q.URL: {}, q.DeadURL: {}}
	require.Eventually(t, func() bool {
		for url, groups := range got {
			received, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
				QueueUrl: &url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
				MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
			})
			require.NoError(t, err)
			for _, m := range received.Messages {
				groups[*m.Body] = m.Attributes["MessageGroupId"]
				require.Equal(t, *m.Body == "c", m.MessageAttributes != nil)
			}
		}
		return len(got[q.URL]) == 4 && len(got[q.DeadURL]) == 4
	}, time.Minute, time.Millisecond)
	for _, groups := range got {
		require.Equal(t, map[string]string{"a": "acme", "b": "", "c": "acme", "d": ""}, groups)
	}
}

// A server that is killed loses no message, and brings none back that was deleted.
func TestMessagesOutliveTheServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "messages")
	var c *sqs.Client
	var queues []Queue
	begin := func() *child.Server {
		srv, err := Start(t.Context(), installedCache(t), file, t.Logf)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, srv.Close()) })
		c, queues = NewClient(srv.Endpoint()), nil
		for name, fifo := range []bool{false, true, false, false} {
			q, err := Create(t.Context(), c, Spec{Name: strconv.Itoa(name), FIFO: fifo})
			require.NoError(t, err)
			queues = append(queues, q)
		}
		return srv
	}
	send := func(q int, body string) {
		t.Helper()
		in := &sqs.SendMessageInput{QueueUrl: &queues[q].URL, MessageBody: &body, MessageGroupId: aws.String("acme")}
		if q == 1 {
			in.MessageDeduplicationId = &body
		}
		_, err := c.SendMessage(t.Context(), in)
		require.NoError(t, err)
	}
	receive := func(q int) (all []types.Message) {
		t.Helper()
		for {
			got, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &queues[q].URL,
				MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}})
			require.NoError(t, err)
			if len(got.Messages) == 0 {
				return all
			}
			all = append(all, got.Messages[0])
			require.Equal(t, "acme", got.Messages[0].Attributes["MessageGroupId"])
		}
	}
	remove := func(q int, m types.Message) {
		t.Helper()
		_, err := c.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &queues[q].URL,
			ReceiptHandle: m.ReceiptHandle})
		require.NoError(t, err)
	}
	srv := begin()
	for q := range queues {
		send(q, "a")
		send(q, "b")
	}
	remove(0, receive(0)[0])
	_, err := c.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: &queues[2].URL})
	require.NoError(t, err)
	_, err = c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &queues[3].URL})
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(srv.PID(), syscall.SIGKILL))
	<-srv.Ended()

	begin()
	got := receive(0)
	require.Len(t, got, 1)
	require.Equal(t, "b", *got[0].Body)
	got = receive(1)
	require.Equal(t, "a", *got[0].Body)
	remove(1, got[0])
	send(1, "c")
	got = receive(1)
	require.Equal(t, []string{"b", "00000000000000000002"}, []string{*got[0].Body, got[0].Attributes["SequenceNumber"]})
	remove(1, got[0])
	require.Equal(t, "00000000000000000003", receive(1)[0].Attributes["SequenceNumber"])
	require.Empty(t, receive(2))
	require.Empty(t, receive(3))
}

func TestCancelledStartEndsEarly(t *testing.T) {
	folder := installedCache(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Start(ctx, folder, "", t.Logf)
	require.ErrorIs(t, err, context.Canceled)
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		node string
		want []string
	}{
		"node":         {"", []string{"node is not on PATH", "install Node.js 20 or newer"}},
		"newer node":   {"echo v18.20.4", []string{"is Node.js 18", "install Node.js 20"}},
		"working node": {"echo no library >&2; exit 127", []string{"does not work", "no library", "install Node.js 20"}},
		"node at all":  {"echo hello", []string{"printed no version: hello"}},
		"npm":          {"echo v20.1.0", []string{"npm is not on PATH", "install Node.js"}},
	} {
		t.Run(name, func(t *testing.T) {
			scripts := map[string]string{}
			if c.node != "" {
				scripts["node"] = c.node
			}
			childtest.Programs(t, nil, scripts)
			_, err := Start(t.Context(), t.TempDir(), "", t.Logf)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestServerThatFailsShowsItsLastLines(t *testing.T) {
	folder := installedCache(t)
	childtest.Programs(t, nil,
		map[string]string{"node": `[ "$1" = --version ] && echo v20.1.0 && exit; echo SyntaxError >&2; exit 1`})
	_, err := Start(t.Context(), folder, "", t.Logf)
	require.ErrorContains(t, err, "ended before it answered")
	require.ErrorContains(t, err, "SyntaxError")
}
