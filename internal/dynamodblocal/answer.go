package dynamodblocal

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idempotency/internal/child"
)

// askEvery is the time between two requests. The first answer takes about two seconds, so
// the requests are no load.
const askEvery = 25 * time.Millisecond

// awaitAnswer asks until endpoint answers like DynamoDB. It ends early with the context,
// after timeout, or when ended is closed; ended may be nil.
func awaitAnswer(ctx context.Context, endpoint string, timeout time.Duration, ended <-chan struct{}) error {
	waiting, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	var last error
	for {
		err := ask(waiting, endpoint)
		if err == nil {
			return nil
		}
		// The last error says more than the time-out.
		if last == nil || waiting.Err() == nil {
			last = err
		}
		select {
		case <-ended:
			return child.ErrEnded
		case <-waiting.Done():
			return fmt.Errorf("%s: %w (last try: %v)", endpoint, context.Cause(waiting), last)
		case <-tick.C:
		}
	}
}

// asker uses proxies as the AWS SDK does, and keeps no connection open.
var asker = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}

// ask sends ListTables once. DynamoDB Local requires a signature but does not verify it. A
// server that verifies it refuses in DynamoDB's form, which counts as an answer too.
func ask(ctx context.Context, endpoint string) error {
	// A server that accepts and stays silent must not use up the whole wait.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810.ListTables")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=idemlocal/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
	res, err := asker.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	if err != nil {
		return err
	}
	if res.Header.Get("X-Amzn-Requestid") == "" || res.StatusCode >= 500 {
		return fmt.Errorf("status %s does not look like DynamoDB: %.200q", res.Status, body)
	}
	return nil
}
