package cloud

import (
	"io"
	"net/http"
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

func TestStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "Shop.template.yaml")
	text := strings.NewReplacer("./cmd/charge", "./testdata/shop", "AWS_IAM", "NONE").Replace(shop)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	out := &output{}
	r, err := Start(t.Context(), path, &Options{BinDir: t.TempDir(), Output: out, Log: t.Logf})
	require.NoError(t, err)
	defer r.Close()
	res, err := http.Post(r.Endpoints.APIs["Shop-Api"]+"/charges", "application/json", strings.NewReader(`{"order":1}`))
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "sent", string(body), out.String())
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "order") }, time.Minute, 10*time.Millisecond)
	t.Log(out.String())
}
