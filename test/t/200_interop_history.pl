
# The checker of histories has to find what is wrong; otherwise the tests under load prove nothing.

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use History;

# Records as "BEGIN-END MODE [VALUE]"; without a value it is the right one.
sub problems
{
	my ($counter, $leases, @sections) = @_;
	my $written = 0;
	my $text = '';
	my $who = 'a';
	foreach (@sections)
	{
		my ($begin, $end, $mode, $value) = /^(\d+)-(\d+) (\S+) ?(\d*)$/ or die $_;
		$text .= sprintf "%d %d %s %d %s\n", $begin, $end, $mode, length $value ? $value : $written, $who++;
		$written++ if $mode eq 'x';
	}
	return History::problems_of($counter // $written, [ History::parse($text) ], leases => $leases // 1);
}

sub is_right
{
	my ($what, @arguments) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is_deeply([ problems(@arguments) ], [], "right: $what");
}

sub is_wrong
{
	my ($what, $pattern, @arguments) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @problems = problems(@arguments);
	is(scalar(@problems), 1, "wrong: $what") or diag explain \@problems;
	return like($problems[0] // '', $pattern, "$what: is said");
}

is_right('one section', undef, undef, '1-2 x');
is_right('one after the other', undef, undef, '1-2 x', '3-4 x', '5-9 x');
is_right('the next begins in the same ns', undef, undef, '1-2 x', '2-4 x');
is_right('readers together', undef, undef, '1-5 s', '2-6 s', '3-4 s');
is_right('a writer between readers', undef, undef, '1-5 s', '2-6 s', '6-7 x', '8-9 s', '8-10 s');
is_right('as many leases as there are', 0, 3, '1-9 1', '2-8 2', '8-10 2', '9-11 1');

is_wrong('two at a time', qr/^overlap: a .* and b /, undef, undef, '1-5 x', '4-6 x');
is_wrong('one within another', qr/^overlap/, undef, undef, '1-9 x', '4-6 x');
is_wrong('by one ns', qr/^overlap/, undef, undef, '1000000001-1000000003 x', '1000000002-1000000009 x');
is_wrong('not with its neighbour', qr/^overlap: a .* and c /, undef, undef, '1-9 s', '2-3 s', '7-10 x');
is_wrong('a writer among readers', qr/^overlap/, undef, undef, '1-5 s', '4-6 x');
is_wrong('a reader with a writer', qr/^overlap/, undef, undef, '1-5 x', '4-6 s');
is_wrong('too many leases', qr/^3 leases at a time/, 0, 2, '1-9 1', '2-8 1', '7-10 1');
is_wrong('too many at once', qr/^4 leases at a time/, 0, 3, '1-9 2', '2-8 2');
is_wrong('more than there are', qr/^3 leases at a time/, 0, 2, '1-9 3');
is_wrong('leases with a lock', qr/^a lease beside a lock/, undef, 5, '1-9 s', '2-8 1');
is_wrong('a lock with leases', qr/^overlap/, undef, 5, '1-9 1', '2-8 x');
is_wrong('a lost update', qr/^read something else than 1/, undef, undef, '1-2 x 0', '3-4 x 0');
is_wrong('a reader that saw something old', qr/^read something else than 1/, undef, undef, '1-2 x 0', '3-4 s 0');
is_wrong('too small a counter', qr/^the counter is 1, but 2/, 1, undef, '1-2 x', '3-4 x');
is_wrong('too large a counter', qr/^the counter is 3, but 2/, 3, undef, '1-2 x', '3-4 x');
is_wrong('a section that ends before it begins', qr/^ends before/, undef, undef, '3-2 x');
is_wrong('nothing at all', qr/^the history is empty/, 0, undef);

# Three rounds that all overlap are three pairs.
is(scalar(problems(undef, undef, '1-9 x', '2-8 x', '3-7 x')), 3, 'every pair is found');

foreach my $line ("1 2 x 0\n", "1 2 x 0 a", "1 2 y 0 a\n", "1 2 x 0 a1 2 x 0 b\n", "\n", "1 2 0 0 a\n")
{
	my @problems = History::problems_of(1, [ History::parse("1 2 x 0 a\n$line") ]);
	ok(scalar(grep { /^malformed/ } @problems), 'malformed: ' . $line =~ s/\n/\\n/gr);
}

# The test reads the records that processes write; without a lock that keeps the processes apart,
# they are wrong.
my $history = History->new;
$history->section('me', 'x', 0) foreach 1 .. 3;
is_deeply([ $history->problems ], [], 'sections of one process');
$history->{rounds}{me} = 4;
is_deeply([ $history->problems ], ['me did 4 rounds, and recorded 3'], 'a round that was not recorded');
delete $history->{rounds};
is(scalar(my @records = $history->records), 3, 'three of them');
ok($history->each_has(3, 'me') && !$history->each_has(4, 'me') && !$history->each_has(1, 'me', 'you'), 'rounds are counted');
$history->section('you', 'x', 0);
ok(!$history->has_handovers(sub { $_[0] }, 'me', 'you'), 'handed over in one direction');
$history->section('me', 'x', 0);
ok($history->has_handovers(sub { $_[0] }, 'me', 'you'), 'handed over in both');
is($history->most_at_a_time, 1, 'one at a time');

my @pids;
foreach my $who ('a', 'b')
{
	my $pid = fork // die "fork: $!";
	push @pids, $pid if $pid;
	next if $pid;
	my $child = bless { directory => $history->directory }, 'History';
	until (-e $history->directory . '/stop')
	{
		$child->section($who, 'x', 500);
	}
	POSIX::_exit(0);
}
$history->wait_until(sub { $history->most_at_a_time == 2 }, 'an overlap');
$history->stop;
waitpid $_, 0 foreach @pids;
ok(scalar(grep { /^overlap/ } $history->problems), 'an overlap of two processes is found');
ok(scalar(grep { /^read something else/ } $history->problems), 'and a lost update');

done_testing();
