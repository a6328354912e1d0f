//! Fewer dimensions by a projection that keeps angles nearly (VADD … REDUCE). Must not know how vectors are stored.
//!
//! The rows of the projection are those of a Hadamard matrix in natural order: the sign at row `i` and column `j` is
//! negative if `i & j` has an odd number of bits. Nothing is random, so every copy of the data projects alike, and
//! nothing needs to be kept but the dimensions. A payload may bring a matrix of its own; that one is kept.

use super::DIMENSIONS_MAX;

/// Numbers in a matrix. A payload spells them all out.
const CELLS_MAX: usize = 1 << 26;
/// Rows that are computed together.
const ROWS: usize = 8;

/// A projection from `inputs` to `outputs` dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    inputs: usize,
    outputs: usize,
    /// Row by row; `None` stands for the Hadamard matrix.
    matrix: Option<Box<[f32]>>,
}

impl Projection {
    /// Returns the projection that a new set gets; `None` with no dimensions, or too many.
    pub fn new(inputs: usize, outputs: usize) -> Option<Projection> {
        let fits = (1..=DIMENSIONS_MAX).contains(&inputs)
            && (1..=DIMENSIONS_MAX).contains(&outputs)
            && inputs * outputs <= CELLS_MAX;
        fits.then_some(Projection {
            inputs,
            outputs,
            matrix: None,
        })
    }

    /// Returns a projection by this matrix, row by row; `None` if it is not of the size.
    pub fn of_matrix(inputs: usize, outputs: usize, matrix: Vec<f32>) -> Option<Projection> {
        let mut projection = Projection::new(inputs, outputs)?;
        if matrix.len() != inputs * outputs {
            return None;
        }
        let usual = matrix
            .iter()
            .zip(projection.matrix())
            .all(|(a, b)| a.to_bits() == b.to_bits());
        if !usual {
            projection.matrix = Some(matrix.into());
        }
        Some(projection)
    }

    /// Dimensions of a vector before.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the matrix, row by row.
    pub fn matrix(&self) -> impl Iterator<Item = f32> + '_ {
        let scale = self.scale();
        let (inputs, own) = (self.inputs, self.matrix.as_deref());
        (0..self.inputs * self.outputs).map(move |at| match own {
            Some(matrix) => matrix[at],
            None => sign(at / inputs, at % inputs) * scale,
        })
    }

    /// Returns the projected vector. There are as many components as inputs.
    pub fn apply(&self, vector: &[f32]) -> Vec<f32> {
        if let Some(matrix) = &self.matrix {
            let rows = matrix.chunks(self.inputs);
            let dot = |row: &[f32]| row.iter().zip(vector).fold(0.0, |sum, (m, x)| sum + m * x);
            return rows.map(dot).collect();
        }
        let scale = self.scale();
        let scaled: Vec<f32> = vector.iter().map(|x| x * scale).collect();
        // Of eight neighbouring rows the lowest three bits differ only: their signs depend on as many bits of the column.
        let lowest: [[f32; ROWS]; ROWS] =
            std::array::from_fn(|column| std::array::from_fn(|row| sign(row, column)));
        let mut out = Vec::with_capacity(self.outputs + ROWS);
        for first in (0..self.outputs).step_by(ROWS) {
            let mut sums = [0.0f32; ROWS];
            for (column, x) in scaled.iter().enumerate() {
                let x = x * sign(first, column);
                let signs = &lowest[column % ROWS];
                for row in 0..ROWS {
                    sums[row] += signs[row] * x;
                }
            }
            out.extend(sums);
        }
        out.truncate(self.outputs);
        out
    }

    /// Returns the number of bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.matrix.as_deref().map_or(0, size_of_val)
    }

    fn scale(&self) -> f32 {
        (1.0 / (self.inputs as f64).sqrt()) as f32
    }
}

fn sign(row: usize, column: usize) -> f32 {
    if (row & column).count_ones().is_multiple_of(2) {
        1.0
    } else {
        -1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signs_are_those_of_the_matrix() {
        for (inputs, outputs) in [(1, 1), (5, 3), (2, 9), (9, 9), (64, 17), (100, 8)] {
            let usual = Projection::new(inputs, outputs).unwrap();
            let matrix: Vec<f32> = usual.matrix().collect();
            let vector: Vec<f32> = (0..inputs).map(|x| (x as f32).cos()).collect();
            let spelt_out = Projection {
                matrix: Some(matrix.clone().into()),
                ..usual.clone()
            };
            assert_eq!(usual.apply(&vector), spelt_out.apply(&vector));
            assert_eq!(Projection::of_matrix(inputs, outputs, matrix), Some(usual));
        }
    }

    #[test]
    fn a_matrix_of_another_kind_is_kept() {
        let matrix = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let projection = Projection::of_matrix(3, 2, matrix.clone()).unwrap();
        assert_eq!(projection.apply(&[1.0, 0.0, 2.0]), [7.0, 16.0]);
        assert_eq!(projection.matrix().collect::<Vec<_>>(), matrix);
        assert_eq!(Projection::of_matrix(4, 2, matrix), None);
        for (inputs, outputs) in [
            (0, 1),
            (1, 0),
            (DIMENSIONS_MAX + 1, 1),
            (DIMENSIONS_MAX, 1025),
        ] {
            assert_eq!(Projection::new(inputs, outputs), None);
        }
    }
}
