package main

import (
	"slices"
	"strings"
)

// The stages of tests: the cheap ones, which should find the mistake, and then those of the packages above.
var (
	protocolTests = []string{
		"./idem/protocol ./idem/memstore",
		"./idem ./idem/later ./idem/reconcile",
	}
	engineTests = []string{
		"./idem",
		"./idem/later ./idem/reconcile ./idem/idemhttp ./idem/memstore",
	}
	// guardTests are those of what is in the engine's guards.
	guardTests = []string{
		"./idem/internal/guard ./idem",
		"./idem/later ./idem/reconcile ./idem/idemhttp ./idem/memstore",
	}
	laterTests = []string{
		"./idem/later ./idem/protocol ./idem/memstore",
		"./idem ./idem/reconcile ./idem/idemhttp",
	}
	dynamoTests = []string{
		"./idem/dynamostore -skip=" + strings.Join(slices.Concat(notMeant, slow), "|"),
		"./idem/dynamostore -run=" + strings.Join(slow, "|"),
	}
	// overDynamo are the engine's tests, and those of the engine over DynamoDB.
	overDynamo      = slices.Concat(engineTests, dynamoEngine)
	guardOverDynamo = slices.Concat(guardTests, dynamoEngine)
	dynamoEngine    = []string{"./idem/dynamostore -run=" + strings.Join([]string{
		"TestDuplicatesAtOnce", "TestClaimsAtOnce", "TestWithdrawalThat", "TestWatchedClaims", "TestAClaimThatABeginMark",
		"TestSweepOn", "TestTransactionLoses", "TestTransfers", "TestLargeResultCommits", "TestResultThatIsAdded",
	}, "|")}
)

// notMeant are tests of dynamostore that compare requests word for word or count what they cost, and so find
// nearly any change, and long ones of what no mutant is in.
var notMeant = []string{
	"TestRequestsAreGolden", "TestAFirstExecutionSendsLittle", "TestCallsPerPath", "TestCallsWithoutTransactions",
	"TestCompressionIsWorthItsLibrary", "TestManySteps", "TestManyMessages", "TestHeldMessages", "TestOutbox",
	"TestClient", "TestCheck", "TestCreateTable", "TestUnitsOf", "TestUnitsAre",
}

// slow are those that take seconds.
var slow = []string{
	"TestConformance", "TestDynamoDBThatIsGone", "TestTwoChangeARecord", "TestResultThatIsAddedLater",
	"TestSealedStepsFit", "TestResultsOfAllSizes", "TestSealedResultsOfAllSizes",
}
