package contract

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/contract"
	"github.com/idem-go/idempotency/idem/testenv/contract/contracttest"
	"github.com/idem-go/idempotency/local/proof/faultnet"
)

func recordDamaged(t *testing.T, s *service) {
	for _, damage := range []string{"REMOVE fp", "REMOVE lease_until", "SET #s = :nonsense"} {
		s.spoilt(t, damage, idemhttp.CodeRecordUnreadable)
	}
}

func recordNewer(t *testing.T, s *service) {
	s.spoilt(t, "SET v = :newer", idemhttp.CodeRecordUnreadable)
}

// acceptedForLater: another part of the service has written the record, and will run the operation.
func acceptedForLater(t *testing.T, s *service) {
	s.spoilt(t, "SET #s = :pending REMOVE expires_at, #r, enc, body_size, parts", idemhttp.CodeAccepted)
}

// spoilt changes a record in the table; its request is then refused.
func (s *service) spoilt(t *testing.T, update string, code idemhttp.Code) {
	t.Helper()
	p := s.always(contract.Made)
	r := s.post(p, s.calm)
	require.Equal(t, 201, s.send(t, r).Status)
	s.update(t, r, update)
	for range 2 {
		s.refused(t, s.send(t, r), code)
	}
	require.Equal(t, 1, p.count())
}

func expired(t *testing.T, s *service) {
	p := s.always(contract.Made)
	r := s.post(p, s.calm)
	require.Equal(t, 201, s.send(t, r).Status)
	s.update(t, r, "SET expires_at = :past")
	again := s.send(t, r)
	require.Equal(t, 201, again.Status)
	contracttest.Unmarked(t, again)
	s.replayed(t, again, s.send(t, r))
	require.Equal(t, 2, p.count())
}

// update changes the record of a request to /payments.
func (s *service) update(t *testing.T, r request, expression string) {
	t.Helper()
	in := &dynamodb.UpdateItemInput{
		TableName: &s.table, UpdateExpression: &expression, ConditionExpression: aws.String("attribute_exists(pk)"),
		Key: map[string]types.AttributeValue{
			schema.PK: &types.AttributeValueMemberS{Value: idem.Operation{Name: "charge"}.Key(r.Tenant, r.Key()).ID()},
			schema.SK: &types.AttributeValueMemberS{Value: schema.RecordSK},
		},
	}
	for name, attribute := range map[string]string{"#s": schema.State, "#r": schema.Body} {
		if strings.Contains(expression, name) {
			if in.ExpressionAttributeNames == nil {
				in.ExpressionAttributeNames = map[string]string{}
			}
			in.ExpressionAttributeNames[name] = attribute
		}
	}
	for name, value := range map[string]types.AttributeValue{
		":nonsense": &types.AttributeValueMemberS{Value: "nonsense"},
		":pending":  &types.AttributeValueMemberS{Value: string(idem.Pending)},
		":newer":    &types.AttributeValueMemberN{Value: strconv.Itoa(schema.RecordVersion + 1)},
		":past":     &types.AttributeValueMemberN{Value: strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10)},
	} {
		if strings.Contains(expression, name) {
			in.ExpressionAttributeValues = map[string]types.AttributeValue{name: value}
		}
	}
	_, err := s.db.UpdateItem(t.Context(), in)
	require.NoError(t, err)
}

// storeAway: one process that cannot reach the table, before or after its handler ran.
func storeAway(t *testing.T, s *service) {
	away := func(f faultnet.Fault) faultnet.Rule { return func(*faultnet.Call) faultnet.Fault { return f } }
	for _, how := range []faultnet.Fault{faultnet.LoseRequest, faultnet.Hang, faultnet.Throttle, faultnet.ServerError} {
		p := s.always(contract.Made)
		r := s.post(p, s.apart)
		s.network.Set(away(how))
		s.refused(t, s.send(t, r), idemhttp.CodeStoreUnavailable)
		require.Zero(t, p.count())
		s.network.Set(nil)
		first := s.sendPatiently(t, r)
		require.Equal(t, 201, first.Status, "%s", first.Body)
		s.replayed(t, first, s.sendPatiently(t, r))
		require.Equal(t, 1, p.count())
	}
	// The handler has run and its outcome cannot be written: its client gets the
	// response, the next request finds it recorded.
	for _, how := range []faultnet.Fault{faultnet.LoseRequest, faultnet.LoseReply, faultnet.Throttle} {
		p, r, first := s.hold(t, s.apart)
		s.network.Set(away(how))
		close(p.gate)
		live := <-first
		require.Equal(t, 201, live.Status, "%s", live.Body)
		require.Equal(t, "made", live.Body)
		s.network.Set(nil)
		s.replayed(t, live, s.sendPatiently(t, r))
		require.Equal(t, 1, p.count())
	}
}

// byteForByte: what the first client got, whatever it is, its cookies apart.
func byteForByte(t *testing.T, s *service) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for name, a := range map[string]contract.Answer{
		"JSON in its own spelling": {Status: 200, Header: map[string][]string{"Content-Type": {"application/json"}},
			Body: []byte("{\"größe\" : 1,\n \"a\":\t1.0 }\n")},
		"every byte": {Status: 200, Header: map[string][]string{"Content-Type": {"image/png"}}, Body: all, Base64: true},
		"large": {Status: 200, Header: map[string][]string{"Content-Type": {"image/png"}},
			Body: noise(500 << 10), Base64: true},
		"headers and cookies": {
			Status: 201, Body: []byte("x"), Cookies: []string{"session=secret; HttpOnly", "b=2"},
			Header: map[string][]string{"Content-Type": {"text/csv"}, "Vary": {"Accept", "Origin"}, "Location": {"/payments/7"},
				"etag": {`W/"1"`}, "X-Empty": {""}},
		},
		"authentication": {
			Status: 200, Body: []byte("x"), Header: map[string][]string{"Content-Type": {"text/plain"},
				"Authentication-Info": {`nextnonce="1"`}},
		},
	} {
		p := s.always(a)
		r := s.post(p, s.calm, contract.Header("Accept", "image/png"))
		first := s.send(t, r)
		require.Equal(t, a.Status, first.Status, name)
		require.Equal(t, string(a.Body), first.Body, name)
		require.Equal(t, strings.Join(a.Header["Vary"], ", "), strings.Join(first.Header.Values("Vary"), ", "))
		s.cookies(t, a, first)
		again := s.send(t, r)
		require.Empty(t, again.Header.Values("Set-Cookie"), "cookies belong to one exchange")
		require.Empty(t, again.Header.Values("Authentication-Info"))
		first.Header.Del("Authentication-Info")
		s.replayed(t, first, again)
		require.Equal(t, 1, p.count())
	}
}

// cookies are all the first client's, or one where the gateway's responses hold no more.
func (s *service) cookies(t *testing.T, a contract.Answer, first contracttest.Reply) {
	t.Helper()
	want := a.Cookies
	if s.name == "ALB" && len(want) > 0 {
		want = want[:1]
	}
	require.Equal(t, want, first.Header.Values("Set-Cookie"))
}

// noise cannot be compressed.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
