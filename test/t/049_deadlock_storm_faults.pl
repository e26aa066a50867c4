
# Many clients acquire locks in random orders, while servers stand still, the network holds up
# requests, and connections break: no client that is not deadlocked gets 40P01, and each deadlock is
# broken when all servers work again.

use strict;
use warnings;

use List::Util qw(shuffle);
use Time::HiRes qw(usleep);

use DeadlockHistory;
use DeadlockStorm;
use HoldingProxy;
use PgWire;
use ZklockTest;

my $seconds = $ENV{STORM_SECONDS} // 10;
my $seed = $ENV{STORM_SEED} // int rand 1_000_000;
my $zk = ZooKeeper->new(servers => 3, java_opts => '');		# which removes empty directories
my %proxies = map { $_ => [ map { HoldingProxy->new($_) } split /,/, $zk->hosts ] } qw(north south);

# No fault takes as long as a session must be silent to be in doubt.
my %settings = ('zklock.session_timeout' => '30s', 'zklock.connection_timeout' => '5min', 'deadlock_timeout' => '100ms');
my %node = map { $_ => ZklockNode->started($_, undef, %settings, 'zklock.hosts' => join ',', map { $_->address } @{ $proxies{$_} }) } qw(north south);
my $storm = DeadlockStorm->new([ @node{qw(north south)} ], clients => 4, deadlock_timeout => 0.1);
my %worker = map { $_ => $node{$_}->worker_pid } keys %node;

# Each begins a fault, and returns the function that ends it, or nothing if the fault is over at
# once.
my %faults = (
	'the worker stands still' => sub {
		my ($name) = @_;
		kill 'STOP', $worker{$name};
		return sub { kill 'CONT', $worker{$name} };
	},
	'requests are held up' => sub { my ($name) = @_; return held_up($name, 'requests'); },
	'replies are held up' => sub { my ($name) = @_; return held_up($name, 'replies'); },
	'connections break' => sub { my ($name) = @_; $_->cut foreach @{ $proxies{$name} }; return; },
	'a ZooKeeper server stands still' => sub {
		my $i = 1 + int rand 3;
		$zk->pause($i);
		return sub { $zk->resume($i) };
	});
my %number_of = map { $_ => 0 } keys %faults;

sub held_up
{
	my ($name, $what) = @_;
	$_->hold($what) foreach @{ $proxies{$name} };
	return sub { $_->pass foreach @{ $proxies{$name} } };
}

# Each fault once, in a random order, and again.  On a slow machine, the first of each may take longer
# than the clients are at work.
sub disturb
{
	my ($until) = @_;
	my (@lines, @todo);
	while (PgWire::now() < $until - 3e6 || grep { !$_ } values %number_of)
	{
		@todo = shuffle(sort keys %faults) unless @todo;
		my $fault = shift @todo;
		my $name = (qw(north south))[ int rand 2 ];
		my $whom = $fault =~ /ZooKeeper/ ? '*' : $name;
		push @lines, PgWire::now() . " $whom - stop";
		my $end = $faults{$fault}->($name);
		usleep(50_000 + int rand 1_200_000) if $end;
		$end->() if $end;
		push @lines, PgWire::now() . " $whom - go";
		$number_of{$fault}++;
		usleep(int rand 400_000);
	}
	return @lines;
}

note "seed $seed";
srand $seed;
my $deadlocks = 0;
for (1 .. 10)	# chance may want that there is no deadlock
{
	my $run = $storm->run(seconds => $seconds, seed => $seed++, disturb => \&disturb);
	my $history = DeadlockHistory->new(@{ $run->{lines} });
	my %figures = $history->figures;
	is(join("\n", $history->problems), '', 'the checker agrees');
	append_to_file("$PostgreSQL::Test::Utils::log_path/history", join "\n", @{ $run->{lines} }, '') if $history->problems;
	note join ' ', map { "$_=$figures{$_}" } sort keys %figures;
	$deadlocks += $run->{deadlocks};
	last if $deadlocks;
}
cmp_ok($deadlocks, '>', 0, 'there were deadlocks');
cmp_ok($number_of{$_}, '>', 0, "$_: $number_of{$_} times") foreach sort keys %number_of;
is($node{$_}->status('expirations, tickets_lost'), '0|0', "$_: no session was lost") foreach sort keys %node;

done_testing();
