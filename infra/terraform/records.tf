# Made from the constructs of package infra: see README.md. go test ./template-tests -run TestPlain -update renews it.

resource "aws_dynamodb_table" "records" {
  billing_mode                = "PAY_PER_REQUEST"
  deletion_protection_enabled = true
  hash_key                    = "pk"
  name                        = "${var.name}-records"
  range_key                   = "sk"
  stream_enabled              = true
  stream_view_type            = "NEW_AND_OLD_IMAGES"

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  attribute {
    name = "open_shard"
    type = "S"
  }

  attribute {
    name = "open_due"
    type = "N"
  }

  global_secondary_index {
    hash_key        = "open_shard"
    name            = "open"
    projection_type = "KEYS_ONLY"
    range_key       = "open_due"
  }

  lifecycle {
    prevent_destroy = true
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled = false
  }

  ttl {
    attribute_name = "expires_at"
    enabled        = true
  }
}

resource "aws_iam_policy" "records_check_policy" {
  description = "For deployments that check the table."
  name        = "${var.name}-records-check-policy"
  path        = "/"
  policy = jsonencode({
    Statement = [{
      Action   = ["dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"]
      Effect   = "Allow"
      Resource = aws_dynamodb_table.records.arn
    }]
    Version = "2012-10-17"
  })
}

resource "aws_iam_policy" "records_execute_policy" {
  description = "For functions that run operations."
  name        = "${var.name}-records-execute-policy"
  path        = "/"
  policy = jsonencode({
    Statement = [{
      Action   = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]
      Effect   = "Allow"
      Resource = aws_dynamodb_table.records.arn
    }]
    Version = "2012-10-17"
  })
}

resource "aws_cloudwatch_metric_alarm" "records_index_read_throttles" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "reads of the index are throttled: open questions and waiting messages are found late; raise MaxReadUnits. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#readthrottles"
  alarm_name          = "${var.name}-records-index-read-throttles"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    GlobalSecondaryIndexName = "open"
    TableName                = aws_dynamodb_table.records.name
  }
  evaluation_periods = 1
  metric_name        = "ReadThrottleEvents"
  namespace          = "AWS/DynamoDB"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "records_index_write_throttles" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "writes of the index are throttled, and those of records with them: calls fail closed, and outcomes may be lost; raise MaxWriteUnits, or watch fewer operations if a shard takes no more. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#writethrottles"
  alarm_name          = "${var.name}-records-index-write-throttles"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    GlobalSecondaryIndexName = "open"
    TableName                = aws_dynamodb_table.records.name
  }
  evaluation_periods = 1
  metric_name        = "WriteThrottleEvents"
  namespace          = "AWS/DynamoDB"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_iam_policy" "records_operator_policy" {
  description = "For operators who decide open questions."
  name        = "${var.name}-records-operator-policy"
  path        = "/"
  policy = jsonencode({
    Statement = [{
      Action   = ["dynamodb:BatchGetItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"]
      Effect   = "Allow"
      Resource = aws_dynamodb_table.records.arn
      }, {
      Action   = "dynamodb:Query"
      Effect   = "Allow"
      Resource = "${aws_dynamodb_table.records.arn}/index/open"
    }]
    Version = "2012-10-17"
  })
}

resource "aws_cloudwatch_metric_alarm" "records_read_throttles" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "reads of records are throttled: calls fail closed; raise MaxReadUnits. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#readthrottles"
  alarm_name          = "${var.name}-records-read-throttles"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    TableName = aws_dynamodb_table.records.name
  }
  evaluation_periods = 1
  metric_name        = "ReadThrottleEvents"
  namespace          = "AWS/DynamoDB"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_iam_policy" "records_reader_policy" {
  description = "For operators who read records."
  name        = "${var.name}-records-reader-policy"
  path        = "/"
  policy = jsonencode({
    Statement = [{
      Action   = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"]
      Effect   = "Allow"
      Resource = aws_dynamodb_table.records.arn
      }, {
      Action   = "dynamodb:Query"
      Effect   = "Allow"
      Resource = "${aws_dynamodb_table.records.arn}/index/open"
    }]
    Version = "2012-10-17"
  })
}

resource "aws_iam_policy" "records_tenant_policy" {
  description = "For functions that run operations of one tenant."
  name        = "${var.name}-records-tenant-policy"
  path        = "/"
  policy = jsonencode({
    Statement = [{
      Action = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]
      Condition = {
        "ForAllValues:StringLike" = {
          "dynamodb:LeadingKeys" = ["${var.tenant}#*"]
        }
        Null = {
          "dynamodb:LeadingKeys" = "false"
        }
      }
      Effect   = "Allow"
      Resource = aws_dynamodb_table.records.arn
    }]
    Version = "2012-10-17"
  })
}

resource "aws_cloudwatch_metric_alarm" "records_transaction_conflicts" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "100 writes in 5 minutes met a transaction on the same item, and again 5 minutes later: many calls write one key at once, and those whose time is up are refused. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#transactionconflicts"
  alarm_name          = "${var.name}-records-transaction-conflicts"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  datapoints_to_alarm = 2
  dimensions = {
    TableName = aws_dynamodb_table.records.name
  }
  evaluation_periods = 3
  metric_name        = "TransactionConflict"
  namespace          = "AWS/DynamoDB"
  period             = 300
  statistic          = "Sum"
  threshold          = 100
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "records_write_throttles" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "writes of records are throttled: calls fail closed; raise MaxWriteUnits, and look for one key that all callers use. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#writethrottles"
  alarm_name          = "${var.name}-records-write-throttles"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    TableName = aws_dynamodb_table.records.name
  }
  evaluation_periods = 1
  metric_name        = "WriteThrottleEvents"
  namespace          = "AWS/DynamoDB"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

output "records_check_policy_arn" {
  value = aws_iam_policy.records_check_policy.arn
}

output "records_execute_policy_arn" {
  value = aws_iam_policy.records_execute_policy.arn
}

output "records_operator_policy_arn" {
  value = aws_iam_policy.records_operator_policy.arn
}

output "records_reader_policy_arn" {
  value = aws_iam_policy.records_reader_policy.arn
}

output "records_tenant_policy_arn" {
  value = aws_iam_policy.records_tenant_policy.arn
}

output "table_arn" {
  value = aws_dynamodb_table.records.arn
}

output "table_name" {
  value = aws_dynamodb_table.records.name
}

output "table_stream_arn" {
  value = aws_dynamodb_table.records.stream_arn
}
