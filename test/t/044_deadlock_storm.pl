
# Many clients acquire locks in random orders: each true deadlock is broken in time, nothing
# else is, and the work goes on.  "make deadlock-storm SECONDS=n" runs it for longer.

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use DeadlockHistory;
use DeadlockStorm;
use ZklockNode;
use ZooKeeper;

my $seconds = $ENV{STORM_SECONDS} // 6;
my $seed = $ENV{STORM_SEED} // int rand 1_000_000;
my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '20s', 'deadlock_timeout' => '100ms');
my @nodes = map { ZklockNode->started($_, $zk, %settings) } qw(north south);
my $storm = DeadlockStorm->new(\@nodes, clients => 4, deadlock_timeout => 0.1);

note "seed $seed";
my $ordered = $storm->run(seconds => $seconds, seed => $seed, ordered => 1);
is($ordered->{deadlocks}, 0, 'ordered locks: no deadlock');
check('ordered locks', $ordered);

my $random = $storm->run(seconds => $seconds, seed => $seed);
cmp_ok($random->{deadlocks}, '>', 0, 'random order: deadlocks');
check('random order', $random);

note "ordered: $ordered->{committed} transactions; random: $random->{committed}, $random->{deadlocks} deadlocks";
cmp_ok($random->{committed}, '>=', $ordered->{committed} / 3, 'a third of the work at least');

sub check
{
	my ($what, $run) = @_;
	my $history = DeadlockHistory->new(@{ $run->{lines} });
	my %figures = $history->figures;
	is(join("\n", $history->problems), '', "$what: the checker agrees");
	append_to_file("$PostgreSQL::Test::Utils::log_path/history", join "\n", @{ $run->{lines} }, '') if $history->problems;
	note join ' ', map { "$_=$figures{$_}" } sort keys %figures;
	return;
}

done_testing();
