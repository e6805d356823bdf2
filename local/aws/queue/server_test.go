package queue

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/child"
	"github.com/idem-go/idempotency/local/aws/child/childtest"
)

func TestServerListensOnLoopbackOnlyAndEndsWithClose(t *testing.T) {
	srv := started(t)
	u, err := url.Parse(srv.Endpoint())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", u.Hostname())
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	pid := srv.process.PID()
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		childtest.RequireLoopbackOnly(t, pid, port)
	}
	requireAnswers(t, srv.Endpoint())
	require.Contains(t, srv.Source(), Package)

	require.NoError(t, srv.Close())
	require.NoError(t, srv.Close(), "closing again does nothing")
	<-srv.Ended()
	requireRefuses(t, srv.Endpoint())
	require.True(t, childtest.Gone(pid))
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

func TestServersRunSideBySideWithoutNPM(t *testing.T) {
	cache := installedCache(t)
	binaries(t, []string{"node"}, nil)
	t.Setenv(EnvCacheDir, cache)
	first, err := Start(t.Context(), nil)
	require.NoError(t, err)
	defer first.Close()
	second, err := Start(t.Context(), nil)
	require.NoError(t, err)
	defer second.Close()
	require.NotEqual(t, first.Endpoint(), second.Endpoint())
	require.NoError(t, first.Close())
	requireAnswers(t, second.Endpoint())
}

func TestServerEndsWhenTheParentIsKilled(t *testing.T) {
	parent, pid, endpoint := startHelper(t, installedCache(t))
	requireAnswers(t, endpoint)
	require.NoError(t, parent.Process.Kill())
	childtest.RequireGone(t, pid)
	requireRefuses(t, endpoint)
}

// The end of its input is enough where the kernel does not help.
func TestServerEndsWithItsInput(t *testing.T) {
	dir, err := install(t.Context(), quiet(t), installedCache(t))
	require.NoError(t, err)
	node, err := findNode(t.Context())
	require.NoError(t, err)
	cmd := serveCommand(node, dir)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	output := child.NewTail()
	cmd.Stdout, cmd.Stderr = output, output
	require.NoError(t, cmd.Start())
	select {
	case <-output.Listening():
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill() // the test has failed
		require.Fail(t, "it does not listen", output.String())
	}
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait(), "it ends with status 0")
}

func TestQueueURLsAndARNs(t *testing.T) {
	srv := started(t)
	c := client(srv.Endpoint())
	made, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("orders")})
	require.NoError(t, err)
	require.Equal(t, srv.Endpoint()+"/000000000000/orders", *made.QueueUrl)
	got, err := c.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: made.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	require.NoError(t, err)
	require.Equal(t, "arn:aws:sqs:eu-central-1:000000000000:orders", got.Attributes["QueueArn"])
}

// A poll that is broken off takes no messages with it.
func TestBrokenOffPollTakesNothing(t *testing.T) {
	srv := started(t)
	c := client(srv.Endpoint())
	for _, fifo := range []bool{false, true} {
		name, attributes := "broken", map[string]string{}
		var group, dedup *string
		if fifo {
			name, attributes["FifoQueue"] = "broken.fifo", "true"
			group, dedup = aws.String("g"), aws.String("d")
		}
		made, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
		require.NoError(t, err)

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: made.QueueUrl, WaitTimeSeconds: 20})
		require.Error(t, err)
		cancel()

		_, err = c.SendMessage(t.Context(), &sqs.SendMessageInput{
			QueueUrl: made.QueueUrl, MessageBody: aws.String("hello"), MessageGroupId: group, MessageDeduplicationId: dedup,
		})
		require.NoError(t, err)
		got, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: made.QueueUrl, WaitTimeSeconds: 10,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		require.NoError(t, err)
		require.Len(t, got.Messages, 1)
		require.Equal(t, "1", got.Messages[0].Attributes["ApproximateReceiveCount"], "the broken poll does not count")
	}
}

func TestCancelledStartEndsEarly(t *testing.T) {
	cache := installedCache(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Start(ctx, &Options{CacheDir: cache})
	require.ErrorIs(t, err, context.Canceled)
}

func TestNegativeTimeoutIsRefused(t *testing.T) {
	_, err := Start(t.Context(), &Options{AnswerTimeout: -1})
	require.ErrorContains(t, err, "must not be negative")
}
