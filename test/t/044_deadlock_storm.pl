
# Many clients acquire locks in random orders: each true deadlock is broken in time, nothing
# else is, and the work goes on.  "make deadlock-storm SECONDS=n" runs it for longer.

use strict;
use warnings;

use List::Util qw(min);

use DeadlockHistory;
use DeadlockStorm;
use ZklockTest;

my $seconds = $ENV{STORM_SECONDS} // 6;
my $seed = $ENV{STORM_SEED} // int rand 1_000_000;
my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '20s', 'deadlock_timeout' => '100ms');
my @nodes = map { ZklockNode->started($_, $zk, %settings) } qw(north south);
my $storm = DeadlockStorm->new(\@nodes, clients => 4, deadlock_timeout => 0.1);

# A long storm has pauses, in which the locks are ordered: a machine is now quick and now slow, so
# figures that are compared were measured at about the same time.
my ($part, $pause) = (min($seconds, 60), min($seconds, 6));
my ($ordered, $random, $deadlocks) = (0, 0, 0);
for (my $done = 0; $done < $seconds || (!$deadlocks && $done < 60); $done += $part)
{
	my $run = $storm->run(seconds => $pause, seed => ++$seed, ordered => 1);
	is($run->{deadlocks}, 0, "seed $seed, ordered locks: no deadlock");
	check('ordered locks', $run);
	$ordered += $run->{committed} / $pause;

	$run = $storm->run(seconds => $part, seed => ++$seed);
	check('random order', $run);
	$random += $run->{committed} / $part;
	$deadlocks += $run->{deadlocks};
}
cmp_ok($deadlocks, '>', 0, 'random order: deadlocks');
note sprintf 'transactions a second, in all: ordered %.0f, random %.0f; %d deadlocks', $ordered, $random, $deadlocks;

# The parts of a short storm may find the machine quick or slow.
cmp_ok($random, '>=', $ordered / 3, 'a third of the work at least') if $ENV{STORM_SECONDS};

sub check
{
	my ($what, $run) = @_;
	my $history = DeadlockHistory->new(@{ $run->{lines} });
	my %figures = $history->figures;
	is(join("\n", $history->problems), '', "seed $seed, $what: the checker agrees");
	append_to_file("$PostgreSQL::Test::Utils::log_path/history", join "\n", @{ $run->{lines} }, '') if $history->problems;
	note join ' ', map { "$_=$figures{$_}" } sort keys %figures;
	return;
}

done_testing();
