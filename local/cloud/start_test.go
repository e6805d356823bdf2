package cloud

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// output collects what functions write.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func post(t *testing.T, url, body string) string {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(text)
}

// A table, an API, a function and a FIFO queue run as their template says, and as it says after a change.
func TestStart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "Shop.template.yaml")
	write := func(changes ...string) {
		t.Helper()
		text := strings.NewReplacer(append(changes, "./cmd/charge", "./testdata/shop", "AWS_IAM", "NONE")...).Replace(shop)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write()
	out := &output{}
	r, err := Start(t.Context(), path, &Options{BinDir: t.TempDir(), Output: out, Log: t.Logf})
	require.NoError(t, err)
	defer r.Close()
	url := r.Endpoints.APIs["Shop-Api"]
	got := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(out.String(), text) }, time.Minute,
			10*time.Millisecond, out)
	}
	require.Equal(t, "sent", post(t, url+"/charges", `{"order":1}`), out.String())
	got(`"body":"{\"order\":1}"`)
	before := r.functions["Shop-Charge"].current

	require.NoError(t, r.Update(t.Context()))
	require.Same(t, before, r.functions["Shop-Charge"].current, "nothing has changed")

	write("POST /charges", "POST /orders", "Timeout: 20", "Timeout: 21",
		"VisibilityTimeout: 120", "VisibilityTimeout: 180")
	require.NoError(t, r.Update(t.Context()))
	require.NotSame(t, before, r.functions["Shop-Charge"].current)
	require.Equal(t, "sent", post(t, url+"/orders", `{"order":2}`), out.String())
	got(`"body":"{\"order\":2}"`)
	require.JSONEq(t, `{"message":"Not Found"}`, post(t, url+"/charges", ""))

	write("NEW_AND_OLD_IMAGES", "KEYS_ONLY")
	require.ErrorContains(t, r.Update(t.Context()), "the table Shop-Records is there with other keys, indexes or another "+
		"stream")
	write("!GetAtt Orders.Arn", "arn:aws:sqs:a:b:none")
	require.ErrorContains(t, r.Update(t.Context()), "there is no queue none")
	require.Equal(t, "sent", post(t, url+"/orders", `{"order":3}`), "what ran before runs on")
}

// What asks a service that is not here is answered with its name.
func TestServicesThatAreNotHere(t *testing.T) {
	out := &output{}
	r := &Running{options: Options{Output: out}}
	req := httptest.NewRequest(http.MethodPost, "/", nil)
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=k/20261128/us-east-1/secretsmanager/aws4_request, "+
		"SignedHeaders=host, Signature=s")
	rec := httptest.NewRecorder()
	r.notHere(rec, req)
	require.Equal(t, http.StatusNotImplemented, rec.Code)
	require.Contains(t, rec.Body.String(), "secretsmanager is not here: only DynamoDB, SQS and SNS are")
	require.Contains(t, out.String(), "a function asks secretsmanager, which is not here")
}
