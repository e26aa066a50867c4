# What pgbench's logs of single transactions say.

package PgbenchLog;

use strict;
use warnings;

use List::Util qw(max min);

# How many transactions each client did, when the first one began, and when each ended.
sub read_files
{
	my ($prefix, $clients) = @_;
	my %log = (counts => [ (0) x $clients ], begin => 9**9**9, ends => []);
	foreach my $name (glob "$prefix.*")
	{
		open my $file, '<', $name or die $!;
		while (my $line = <$file>)
		{
			my ($client, undef, $latency, undef, $s, $us) = split ' ', $line;
			my $end = $s + $us / 1e6;
			$log{counts}[$client]++;
			$log{begin} = min($log{begin}, $end - $latency / 1e6);
			push @{ $log{ends} }, $end;
		}
	}
	return \%log;
}

# Transactions a second, when the clients have worked for "start_up" seconds.
sub rate_of
{
	my ($log, $start_up, $time) = @_;
	my $begin = $log->{begin} + $start_up;
	my $end = $begin + $time;
	die "pgbench's clients took too long to connect\n" if max(@{ $log->{ends} }) < $end;
	return grep({ $_ >= $begin && $_ < $end } @{ $log->{ends} }) / $time;
}

1;
