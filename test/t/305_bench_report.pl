
# The figures of the benchmark in README, on the page about performance and in the picture
# are those of one measurement, and there are no others.

use strict;
use warnings;

use Test::More;

use FindBin;
use lib "$FindBin::RealBin/../bench";
use PgbenchLog;
use PostgreSQL::Test::Utils;
use Workloads;

my $top = "$FindBin::RealBin/../..";
my $dir = PostgreSQL::Test::Utils::tempdir();
my %text;
my %copy = map { ($_ => "$dir/" . s/.*\///r) } qw(README.md doc/performance.md test/bench/RESULTS.md);
foreach my $name (keys %copy)
{
	$text{$name} = slurp_file("$top/$name");
	append_to_file($copy{$name}, $text{$name});
}

# --- reading ---

# The table with that mark: {row}{column}.
sub table_of
{
	my ($doc, $mark) = @_;
	my ($text) = $doc =~ /<!-- bench \Q$mark\E -->\n(.*?)<!-- end -->/s or return {};
	my ($head, undef, @rows) = map { [ split / *\| */, s/^\| //r, -1 ] } split /\n/, $text;
	my %table;
	foreach my $row (@rows)
	{
		$table{ $row->[0] }{ $head->[$_] } = $row->[$_] foreach 1 .. $#$head - 1;
	}
	return \%table;
}

sub rate_in { my ($cell) = @_; return $cell =~ /^([\d,.]+)/ ? $1 : ''; }

# Whether README and the picture agree with the page.
sub agree
{
	my ($readme, $page, $svg, $which) = @_;
	my $rates = table_of($page, 'rates 1');
	my $summary = table_of($readme, 'summary');
	my (@readme, @picture);

	foreach my $row (keys %$summary)
	{
		push @readme, "$row, $_" foreach
		  grep { $summary->{$row}{$_} ne rate_in($rates->{$row}{$_} // '') } keys %{ $summary->{$row} };
	}
	is(scalar keys %$summary, 3, "$which README has a table");
	is_deeply(\@readme, [], "$which README agrees with the page");

	my @titles = $svg =~ /<title>(.*?)<\/title>/g;
	foreach my $title (@titles)
	{
		my ($id, $system, $rate) = $title =~ /^(\S+), (.*): (\S+) a second$/;
		push @picture, $title if $rate ne rate_in($rates->{ $Workloads::by_id{$id}{title} }{$system} // '');
	}
	cmp_ok(scalar @titles, '>', 30, "$which picture has bars");
	is_deeply(\@picture, [], "$which picture agrees with the page");
	return;
}

# The cells "RATE (RATIO)" of the tables of rates whose ratio is not what the rates beside it give, but for the
# rounding of the rates.
sub false_ratios
{
	my ($text) = @_;
	my $number = sub { return $_[0] =~ s/,//gr; };
	my @false;
	foreach my $line ($text =~ /^(\|.*\(\d[\d.]*\).*\|)$/mg)
	{
		my ($title, $ours, @others) = map { s/^\s+|\s+$//gr } (split /\|/, $line)[ 1 .. 100 ];
		foreach (grep { defined && /\(/ } @others)
		{
			my ($theirs, $ratio) = /^([\d,.]+) \(([\d.]+)\)$/ or next;
			my $quotient = $number->($ours) / $number->($theirs);
			push @false, "$title: $_" if abs($ratio / $quotient - 1) > 0.02 && abs($ratio - $quotient) > 0.006;
		}
	}
	return @false;
}

# --- the documents as they are ---

agree($text{'README.md'}, $text{'doc/performance.md'}, slurp_file("$top/doc/bench.svg"), 'committed');
cmp_ok(scalar(() = $text{'doc/performance.md'} =~ /\([\d.]+\) \|/g), '>', 50, 'there are ratios');
foreach my $name (sort keys %text)
{
	my $prose = $text{$name} =~ s/<!-- bench .*?<!-- end -->//sgr;
	my @figures = $prose =~ /([\d.,]+(?: to [\d.,]+)? (?:times as|locks a second|acquisitions a second))/g;
	is_deeply(\@figures, [], "$name has no figure that is not between marks");
	is_deeply([ false_ratios($text{$name}) ], [], "$name: each ratio is the quotient of the rates beside it");
}

# --- what the report makes of a measurement ---

my $number = 100;
my %figure;						# {ensemble}{workload}{system}: rounds

sub measurement
{
	my ($ensemble) = @_;
	foreach my $w (@Workloads::all)
	{
		$figure{$ensemble}{ $w->{id} }{$_} = [ map { $number += 7 } 1 .. 3 ] foreach Workloads::measured($w, $ensemble);
	}
	return;
}

sub report
{
	my $csv = "$dir/bench.csv";
	open my $f, '>', $csv or die $!;
	print $f "ensemble,workload,system,round,metric,value\n";
	foreach my $e (sort keys %figure)
	{
		foreach my $w (@Workloads::all)
		{
			my $of = $figure{$e}{ $w->{id} };
			foreach my $system (sort keys %$of)
			{
				print $f join(',', $e, $w->{id}, $system, $_, $w->{of}, $of->{$system}[ $_ - 1 ]), "\n" foreach 1 .. @{ $of->{$system} };
			}
		}
		print $f "$e,machine,run,0,$_,2\n" foreach qw(processors sync_us rounds seconds);
	}
	close $f;
	return run_log([ $^X, "-I$top/test/bench", "$top/test/bench/report", "csv=$csv", "svg=$dir/bench.svg",
			'docs=' . join ' ', sort values %copy ]);
}

measurement(1);
ok(!report(), 'a part of a measurement is refused');
is(slurp_file($copy{'README.md'}), $text{'README.md'}, 'and nothing is written');

measurement(3);
my $id = 'W3-64';
my $of = $figure{1}{$id};
$of->{zklock} = [ 1000, 3000, 2000 ];
$of->{Curator} = [ 100, 100, 100 ];
$of->{'Curator-shared'} = [ 10, 10, 90 ];
$of->{redis} = [ 20, 20, 20 ];
$of->{'redis-wait'} = [ 4000, 1000, 1000 ];
$figure{1}{W4}{zklock} = [ 500, 500, 500 ];
$figure{1}{W4}{'zklock-turns'} = [ 9000, 9000, 9000 ];
ok(report(), 'a whole one is not');

my ($readme, $page, $results) = map { slurp_file($copy{$_}) } qw(README.md doc/performance.md test/bench/RESULTS.md);
my $rates = table_of($page, 'rates 1');
my ($w3, $w4) = map { $rates->{ $Workloads::by_id{$_}{title} } } $id, 'W4';
agree($readme, $page, slurp_file("$dir/bench.svg"), 'new');
is($w3->{zklock}, '2,000', 'the median of the rounds');
is($w3->{Curator}, '100 (20.0)', 'Curator in its faster form, and the quotient of the medians');
is($w3->{Redis}, '1,000 (2.00)', 'Redis, too');
is($w4->{zklock}, '500', 'zklock always with default settings');
like($results, qr/\| $Workloads::by_id{$id}{title} \| Curator, one object for all threads \| 10\.0 \|/, 'the slower form is shown, too');

$figure{1}{$id}{kazoo} = [];
ok(!report(), 'one that lacks a system is refused');
is(slurp_file($copy{'README.md'}), $readme, 'and nothing is written');

# --- the rate that is counted from pgbench's log ---

# client, transaction, latency in microseconds, script, and when it ended
append_to_file("$dir/log.1", <<END);
0 1 500000 0 100 500000
1 1 100000 0 101 900000
0 2 900000 0 102 0
1 2 100000 0 103 999999
END
append_to_file("$dir/log.1.2", "2 1 100000 0 104 0\n2 2 100000 0 105 0\n3 1 100000 0 102 500000\n");
my $log = PgbenchLog::read_files("$dir/log", 4);
is_deeply($log->{counts}, [ 2, 2, 2, 1 ], 'transactions are counted for each client');
is($log->{begin}, 100, 'the time begins when the first transaction does');
is(PgbenchLog::rate_of($log, 2, 2), 1.5, 'only those that end in the time after the start-up are counted');
is(PgbenchLog::rate_of($log, 0, 4), 1.25, 'or without a start-up from the beginning');
ok(!eval { PgbenchLog::rate_of($log, 2, 4) }, 'clients that end before the time is over are an error');

done_testing();
