package kmsseal

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/testenv/kmstest"
)

var _ dynamostore.Sealer = (*Sealer)(nil)

func open(t *testing.T, client Client, o Options) *Sealer {
	t.Helper()
	if o.Key == "" {
		o.Key = "alias/results"
	}
	s, err := New(client, o)
	require.NoError(t, err)
	return s
}

func seal(t *testing.T, s *Sealer, plain string) []byte {
	t.Helper()
	sealed, err := s.Seal(t.Context(), []byte(plain), []byte("bound"))
	require.NoError(t, err)
	return sealed
}

func TestOneDataKeyIsGeneratedAndUnwrappedOnceInAProcess(t *testing.T) {
	t.Parallel()
	service := kmstest.New(t)
	client := service.Client()
	writer := open(t, client, Options{Context: map[string]string{"app": "payments", "a": "b"}})
	require.NoError(t, writer.Ready(t.Context()))
	var all [][]byte
	for _, plain := range []string{"", "1", strings.Repeat("x", 1<<20)} {
		sealed := seal(t, writer, plain)
		require.LessOrEqual(t, len(sealed), len(plain)+writer.Overhead())
		require.NotContains(t, string(sealed), "xxxx")
		all = append(all, sealed)
		got, err := writer.Open(t.Context(), sealed, []byte("bound"))
		require.NoError(t, err)
		require.Equal(t, plain, string(got))
	}
	require.NotEqual(t, seal(t, writer, "1"), seal(t, writer, "1"))
	require.Equal(t, []string{"GenerateDataKey"}, service.Made())

	reader := open(t, client, Options{Context: map[string]string{"a": "b", "app": "payments"}})
	for _, sealed := range all {
		_, err := reader.Open(t.Context(), sealed, []byte("bound"))
		require.NoError(t, err)
	}
	require.Equal(t, []string{"Decrypt"}, service.Made())
}

func TestWhatIsNotAsItWasSealedDoesNotOpen(t *testing.T) {
	t.Parallel()
	client := kmstest.New(t).Client()
	s := open(t, client, Options{})
	good := seal(t, s, "secret")
	for n := range good {
		bad := bytes.Clone(good)
		bad[n] ^= 1
		_, err := open(t, client, Options{}).Open(t.Context(), bad, []byte("bound"))
		require.Error(t, err, n)
		require.NotErrorIs(t, err, protocol.ErrStoreUnavailable, n)
		_, err = s.Open(t.Context(), good[:n], []byte("bound"))
		require.Error(t, err, n)
	}
	for name, c := range map[string]struct {
		o     Options
		bound string
	}{
		"another KMS key":         {Options{Key: "alias/other"}, "bound"},
		"another context":         {Options{Context: map[string]string{"app": "other"}}, "bound"},
		"former keys alone":       {Options{Key: "alias/new", FormerKeys: []string{"alias/older"}}, "bound"},
		"bound to something else": {Options{}, "else"},
	} {
		_, err := open(t, client, c.o).Open(t.Context(), good, []byte(c.bound))
		require.Error(t, err, name)
		require.NotErrorIs(t, err, protocol.ErrStoreUnavailable, name)
	}
	_, err := open(t, client, Options{Key: "alias/new", FormerKeys: []string{"alias/older", "alias/results"}}).Open(
		t.Context(), good, []byte("bound"))
	require.NoError(t, err, "one of the former keys")
}

// An error that passes by keeps a reader waiting. One that does not makes the result unreadable.
func TestErrorsOfKMS(t *testing.T) {
	t.Parallel()
	service := kmstest.New(t)
	client := service.Client()
	sealed := seal(t, open(t, client, Options{}), "secret")
	for code, tc := range map[string]struct {
		status int
		passes bool
	}{
		"ThrottlingException":        {400, true},
		"LimitExceededException":     {400, true},
		"KMSInternalException":       {500, true},
		"DependencyTimeoutException": {503, true},
		"KeyUnavailableException":    {500, true},
		"AccessDeniedException":      {400, false},
		"DisabledException":          {400, false},
		"NotFoundException":          {400, false},
		"KMSInvalidStateException":   {400, false},
		"InvalidCiphertextException": {400, false},
	} {
		service.Breaks(func(string) (int, string) { return tc.status, code })
		s := open(t, client, Options{})
		_, err := s.Open(t.Context(), sealed, []byte("bound"))
		require.ErrorContains(t, err, code)
		require.Equal(t, tc.passes, errors.Is(err, protocol.ErrStoreUnavailable), code)
		require.ErrorContains(t, s.Ready(t.Context()), code)
		_, err = s.Seal(t.Context(), nil, nil)
		require.ErrorContains(t, err, code)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	service.Breaks(nil)
	_, err := open(t, client, Options{}).Open(ctx, sealed, []byte("bound"))
	require.ErrorIs(t, err, context.Canceled)
	_, err = open(t, client, Options{}).Seal(ctx, nil, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// service is a KMS without a network, for tests of time.
type service struct {
	kmstest.Service
	takes time.Duration
	// silent: it never answers.
	silent bool
}

func (s *service) Do(r *http.Request) (*http.Response, error) {
	time.Sleep(s.takes)
	if s.silent {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

func (s *service) client() *kms.Client {
	o := s.Client().Options()
	o.BaseEndpoint, o.HTTPClient = aws.String("http://kms"), s
	return kms.New(o)
}

func TestADataKeyIsReplacedWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &service{}
		s := open(t, f.client(), Options{MaxAge: time.Hour, MaxUses: 3})
		first := seal(t, s, "1")
		time.Sleep(time.Hour - 1)
		seal(t, s, "2")
		require.Len(t, f.Made(), 1)
		time.Sleep(time.Nanosecond)
		for range 3 {
			seal(t, s, "3")
		}
		require.Len(t, f.Made(), 1, "by its age")
		seal(t, s, "4")
		require.Len(t, f.Made(), 1, "by its uses")

		const down = "KMSInternalException"
		f.Breaks(func(string) (int, string) { return 500, down })
		time.Sleep(time.Hour)
		for range 5 {
			seal(t, s, "5")
		}
		require.Len(t, f.Made(), 1, "the former is good enough, and KMS is not asked all the time")
		_, err := s.Seal(t.Context(), nil, nil)
		require.ErrorContains(t, err, down, "not for ever")
		time.Sleep(pause)
		f.Breaks(nil)
		seal(t, s, "6")

		_, err = s.Open(t.Context(), first, []byte("bound"))
		require.NoError(t, err)
		f.Made()
		time.Sleep(2 * time.Hour)
		_, err = s.Open(t.Context(), first, []byte("bound"))
		require.NoError(t, err)
		require.Len(t, f.Made(), 1, "what was unwrapped is forgotten")
	})
}

func TestManyAtOnceAskForOneDataKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &service{takes: time.Second}
		s := open(t, f.client(), Options{})
		all := func() {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					_, err := s.Seal(t.Context(), []byte("x"), nil)
					require.NoError(t, err)
				})
			}
			wg.Wait()
		}
		all()
		require.Len(t, f.Made(), 1)
		time.Sleep(DefaultMaxAge)
		began := time.Now()
		all()
		require.Equal(t, time.Second, time.Since(began))
		require.Len(t, f.Made(), 1)

		late := open(t, f.client(), Options{})
		go func() { _, _ = late.Seal(context.Background(), nil, nil) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := late.Seal(ctx, nil, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(f.takes)
	})
}

// A KMS that does not answer takes three seconds of a caller, who may have minutes, and a second
// caller none.
func TestASilentKMSTakesNoTimeThatACallerMayHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sealed := seal(t, open(t, new(service).client(), Options{}), "secret")
		s := open(t, (&service{silent: true}).client(), Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, s.Ready(ctx), context.DeadlineExceeded)
		require.Equal(t, callTime, time.Since(began))
		require.ErrorIs(t, s.Ready(ctx), context.DeadlineExceeded)
		require.Equal(t, callTime, time.Since(began))
		_, err := s.Open(ctx, sealed, []byte("bound"))
		require.ErrorIs(t, err, protocol.ErrStoreUnavailable)
		require.Equal(t, 2*callTime, time.Since(began))

		s = open(t, (&service{silent: true}).client(), Options{})
		for n, within := range []time.Duration{patience - 1, patience, patience} {
			began = time.Now()
			short, cancel := context.WithTimeout(t.Context(), within)
			require.ErrorIs(t, s.Ready(short), context.DeadlineExceeded)
			cancel()
			require.Equal(t, []time.Duration{within, within, 0}[n], time.Since(began),
				"a caller without time says nothing of KMS")
		}
	})
}

func TestDataKeysInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	client := new(service).client()
	reader := open(t, client, Options{})
	for range maxOpened + 10 {
		_, err := reader.Open(t.Context(), seal(t, open(t, client, Options{}), "x"), []byte("bound"))
		require.NoError(t, err)
	}
	require.Len(t, reader.opened, maxOpened)
}

// large is a KMS whose data keys are too large when they are wrapped.
type large struct{ Client }

func (large) GenerateDataKey(context.Context, *kms.GenerateDataKeyInput, ...func(*kms.Options)) (
	*kms.GenerateDataKeyOutput, error) {
	return &kms.GenerateDataKeyOutput{Plaintext: make([]byte, 32), CiphertextBlob: make([]byte, maxWrapped+1)}, nil
}

func TestMistakesInOptions(t *testing.T) {
	t.Parallel()
	for says, o := range map[string]Options{
		"Options.Key":     {},
		"FormerKeys":      {Key: "k", FormerKeys: []string{""}},
		"Options.MaxAge":  {Key: "k", MaxAge: time.Millisecond},
		"Options.MaxUses": {Key: "k", MaxUses: MaxMaxUses + 1},
	} {
		_, err := New(large{}, o)
		var mistake *idem.ConfigError
		require.ErrorAs(t, err, &mistake, says)
		require.ErrorContains(t, err, says)
	}
	_, err := New((*kms.Client)(nil), Options{Key: "k"})
	require.ErrorContains(t, err, "kms.NewFromConfig")
	require.ErrorContains(t, open(t, large{}, Options{}).Ready(t.Context()), "room for 256")
}
